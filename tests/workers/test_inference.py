"""The hold on the inference process, tried on processes that misbehave and load nothing."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from orchestrator.errors import TransientError
from tests.conftest import wait_until
from workers.inference import InferenceProcess
from workers.life import Life, Patience
from workers.protocol import Configure, Done, Generate, Loaded, Step

QUICK = Patience(silence_s=1.0, start_silence_s=20.0, load_s=30.0, least_s=0.2, abandon_s=0.3, tick_s=0.05)
REQUEST = Generate(
    request=0,
    model="any",
    prompt="",
    negative_prompt="",
    width=8,
    height=8,
    steps=1,
    guidance_scale=1.0,
    seed=1,
    num_images=1,
)

Begin = Callable[[str], AbstractAsyncContextManager[InferenceProcess]]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Makes inference processes of a behaviour; each start of theirs adds a dot to the file `starts`."""

    @asynccontextmanager
    async def begin(behaviour: str) -> AsyncIterator[InferenceProcess]:
        command = [sys.executable, "-m", "tests.workers.scripted_child", behaviour, str(tmp_path / "starts")]
        process = InferenceProcess(Configure({}, None), QUICK, command, first_pause_s=0.01)
        try:
            yield process
        finally:
            await process.stop()

    return begin


async def run_one(process: InferenceProcess) -> None:
    async with process.attempt(REQUEST) as attempt:
        while not isinstance(await attempt.next_answer(5.0), Done):
            pass


async def test_one_process_serves_attempt_after_attempt_and_ends_when_told(begin: Begin) -> None:
    async with begin("good") as process:
        await run_one(process)
        pid = process.pid
        await run_one(process)
        assert process.pid == pid
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_what_a_library_prints_does_not_disturb_the_protocol(begin: Begin) -> None:
    async with begin("good") as process:  # it prints before its first frame
        await run_one(process)


async def test_a_process_that_dies_at_the_start_is_started_until_it_lives(begin: Begin, tmp_path: Path) -> None:
    async with begin("dies-at-first") as process:
        for _ in range(2):
            with pytest.raises(TransientError, match="ended with status 3"):
                await process.start()
        await run_one(process)
    assert (tmp_path / "starts").read_text() == "..."


async def test_a_process_that_cannot_work_says_why(begin: Begin) -> None:
    async with begin("unusable") as process:
        with pytest.raises(TransientError, match="cannot work here: ModuleNotFoundError: No module named 'torch'"):
            await process.start()


async def test_a_program_that_is_not_there_is_a_clear_error() -> None:
    process = InferenceProcess(Configure({}, None), QUICK, ["/no/such/program"])
    with pytest.raises(TransientError, match=r"cannot be started: .*No such file"):
        await process.start()
    await process.stop()


async def test_a_process_that_ends_by_itself_costs_the_attempt_and_is_replaced(begin: Begin, tmp_path: Path) -> None:
    async with begin("leaves") as process:
        await process.start()
        with pytest.raises(TransientError, match="ended with status 7"):
            await run_one(process)
        await process.start()
    assert (tmp_path / "starts").read_text() == ".."


async def test_a_process_that_dies_while_idle_costs_no_attempt(begin: Begin) -> None:
    async with begin("good") as process:
        await process.start()
        pid = process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: process.pid not in (pid, None))
        await run_one(process)


async def test_a_process_that_beats_but_makes_no_progress_is_killed(begin: Begin) -> None:
    async with begin("crawls") as process, process.attempt(REQUEST) as attempt:
        assert isinstance(await attempt.next_answer(5.0), Loaded)
        await attempt.next_answer(5.0)
        step = await attempt.next_answer(5.0)
        assert isinstance(step, Step)
        with pytest.raises(TransientError, match=r"made no progress for 0.2 s and was killed"):
            await attempt.next_answer(attempt.patience.between_steps_s(step.ms))


async def test_a_silent_process_is_killed_before_its_time_is_over(begin: Begin) -> None:
    async with begin("silent") as process, process.attempt(REQUEST) as attempt:
        await attempt.next_answer(5.0)
        with pytest.raises(TransientError, match="gave no sign of life for 1 s and was killed"):
            await attempt.next_answer(600.0)


async def test_a_process_that_answers_out_of_turn_is_killed(begin: Begin) -> None:
    async with begin("mixes-up") as process:
        with pytest.raises(TransientError, match=r"answered out of turn \(Done\)"):
            await run_one(process)


async def test_a_process_that_does_not_begin_with_ready_is_killed(begin: Begin) -> None:
    async with begin("impatient") as process:
        with pytest.raises(TransientError, match="began with Done"):
            await process.start()


async def test_an_abandoned_attempt_that_stops_keeps_its_process(begin: Begin) -> None:
    async with begin("crawls-until-told") as process:
        async with process.attempt(REQUEST) as attempt:
            await attempt.next_answer(5.0)
            pid = process.pid
        await process.start()
        assert process.pid == pid


async def test_an_abandoned_attempt_that_does_not_stop_loses_its_process(begin: Begin) -> None:
    async with begin("ignores-cancel") as process:
        async with process.attempt(REQUEST) as attempt:
            await attempt.next_answer(5.0)
            pid = process.pid
        await process.start()
        assert process.pid != pid


async def test_stopping_does_not_wait_for_an_attempt(begin: Begin) -> None:
    async with begin("silent") as process:
        async with process.attempt(REQUEST) as attempt:
            await attempt.next_answer(5.0)
            waiting = asyncio.create_task(attempt.next_answer(600.0))
            await process.stop()
            with pytest.raises(TransientError, match="was stopped"):
                await waiting


async def test_whoever_waits_for_a_start_may_leave_without_harm(begin: Begin) -> None:
    async with begin("good") as process:
        waiting = asyncio.create_task(process.start())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await run_one(process)


async def test_whoever_waits_for_a_start_is_told_when_there_will_be_none(begin: Begin) -> None:
    async with begin("never-ready") as process:
        waiting = asyncio.create_task(process.start())
        await asyncio.sleep(0)
        await process.stop()
        with pytest.raises(TransientError, match="is being stopped"):
            await waiting


async def test_a_process_that_is_silent_at_its_start_is_given_more_time(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.workers.scripted_child", "never-ready", str(tmp_path / "starts")]
    patience = Patience(silence_s=0.1, start_silence_s=0.5, tick_s=0.05)
    process = InferenceProcess(Configure({}, None), patience, command)
    with pytest.raises(TransientError, match=r"gave no sign of life for 0\.5 s and was killed"):
        await process.start()
    await process.stop()


HOLDS_OUTPUT = "sleep 60 & echo $! >{note}; exit 3"
HOLDS_INPUT = "exec 9<&0; sleep 60 >/dev/null & echo $! >{note}; exit 3"
HOLDS_NOTHING = "sleep 60 </dev/null >/dev/null & echo $! >{note}; exit 3"


async def begin_with_helper(code: str, note: Path) -> Life:
    """A process that forks a helper and ends at once, with status 3."""
    return await Life.begin(["/bin/sh", "-c", code.format(note=note)], QUICK)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_helper_that_outlives_the_process_does_not_keep_it_from_being_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("orchestrator.child_process.STOP_S", 0.2)
    life = await begin_with_helper(HOLDS_OUTPUT, tmp_path / "helper")
    async with asyncio.timeout(10):
        await life.close()
    assert life.ended.done()


async def test_a_helper_that_outlives_the_process_costs_the_attempt_its_patience_only(tmp_path: Path) -> None:
    life = await begin_with_helper(HOLDS_OUTPUT, tmp_path / "helper")
    async with asyncio.timeout(10):
        with pytest.raises(TransientError, match="gave no sign of life"):
            await life.next_report(5.0, 0.2)
        await life.close()


@pytest.mark.parametrize("code", [HOLDS_INPUT, HOLDS_NOTHING])
async def test_a_helper_neither_hides_the_end_nor_outlives_it(
    code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("orchestrator.child_process.STOP_S", 0.2)
    life = await begin_with_helper(code, tmp_path / "helper")
    async with asyncio.timeout(10):
        await asyncio.wait([life.ended])
    assert str(life.end) == "the inference process ended with status 3"
    helper = int((tmp_path / "helper").read_text())
    await wait_until(lambda: not is_alive(helper))
    await life.close()


async def test_nobody_is_killed_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    life = await Life.begin(["/bin/sh", "-c", "exit 3"], QUICK)
    await asyncio.wait([life.ended])
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: killed.append(group))
    life.kill("too late")
    await life.close()
    assert not killed
