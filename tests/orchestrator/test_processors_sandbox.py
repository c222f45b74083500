"""Processors in processes of their own: what they can do, how they crash, how they are stopped."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator import ActiveJob, Sandbox, Worker
from orchestrator.errors import InvalidOption
from orchestrator.job import Job, JobOptions, JobState
from orchestrator.processors import SandboxPool
from orchestrator.processors.messages import describe, rebuild
from orchestrator.queue import Queue
from tests.conftest import wait_until
from tests.invariants import check_history
from tests.orchestrator.running import ended, run_one, types
from tests.orchestrator.sandboxed import Result

MODULE = "tests.orchestrator.sandboxed"
ROOT = Path(__file__).parents[2]


def sandbox(function: str, **options: Any) -> Sandbox:
    return Sandbox(f"{MODULE}:{function}", **options)


async def run(queue: Queue, url: str, function: str, data: Any, options: JobOptions | None = None) -> Job:
    job = await queue.add("paint", data, options)
    async with Worker(queue.name, sandbox(function), url):
        (job,) = await ended(queue, job.id)
    check_history(await queue.get_history(job.id))
    return job


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def processes(worker: Worker) -> set[int]:
    assert isinstance(worker._processor, SandboxPool)
    return {process.pid for process in worker._processor._all}


async def until_it_told(queue: Queue, job_id: str) -> None:
    async def told() -> bool:
        return "progress" in await types(queue, job_id)

    await wait_until(told)


# ── what it can do ───────────────────────────────────────────────────────────────────────────────────


async def test_it_runs_elsewhere_and_its_processes_are_used_again(queue: Queue, url: str) -> None:
    ids = [(await queue.add("paint")).id for _ in range(12)]
    worker = Worker(queue.name, sandbox("echo"), url, concurrency=2)
    assert worker._keeper is None, "nothing here can block the worker"
    async with worker:
        jobs = await ended(queue, *ids)
        pids = processes(worker)
        assert len(pids) <= 2
    results = [job.result_as(Result) for job in jobs]
    assert {result.pid for result in results if result} == pids
    assert os.getpid() not in pids
    assert sum(result.jobs == 1 for result in results if result) == len(pids)
    assert not any(is_running(pid) for pid in pids)


async def test_a_process_is_replaced_after_its_jobs(queue: Queue, url: str) -> None:
    ids = [(await queue.add("paint")).id for _ in range(5)]
    async with Worker(queue.name, sandbox("echo", jobs_per_process=2), url):
        jobs = await ended(queue, *ids)
    results = [result for job in jobs if (result := job.result_as(Result))]
    assert [result.jobs for result in results] == [1, 2, 1, 2, 1]


async def test_all_a_job_can_tell_arrives_in_order_and_what_it_prints_is_seen(
    queue: Queue, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    job = await run_one(queue, url, sandbox("tells"), progress_interval_ms=10)
    assert job.result_as(dict) == {"in": job.id}
    told = [(event.type, event.fields.get("name")) for event in (await queue.get_history(job.id))[1:]]
    assert told == [
        ("active", None),
        ("progress", None),
        ("milestone", "half"),
        ("milestone", "preview_ready"),
        ("progress", None),
        ("completed", None),
    ]
    assert "printed in the sandbox" in capfd.readouterr().err


async def test_an_async_function_works_as_well(queue: Queue, url: str) -> None:
    job = await run(queue, url, "tells_async", None)
    assert job.result_as(str) == job.id
    assert (await types(queue, job.id)).count("progress") == 4


@pytest.mark.parametrize("function", ["looks", "looks_async"])
async def test_it_can_ask_for_what_the_worker_knows(
    queue: Queue, url: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ActiveJob, "secret", property(lambda job: f"secret of {job.id}"), raising=False)
    job = await run(queue, url, function, "123")
    assert job.result_as(str) == f"secret of {job.id} and 3"


@pytest.mark.parametrize(
    ("what", "kind", "message", "details"),
    [
        ("poison", "poison", "never", {"field": "prompt"}),
        ("their own poison", "own", "no", {"why": "not"}),
        ("later", "transient", "later", {"n": 1}),
        ("foreign", "transient", "oh", {"type": "ZeroDivisionError"}),
        ("exit", "transient", "3", {"type": "SystemExit"}),
        ("unprintable", "transient", "?", {"type": "OSError"}),
        ("no json", "transient", "Encoding objects of type object is unsupported", {"type": "TypeError"}),
    ],
)
async def test_what_it_raises_means_what_it_means_elsewhere(
    queue: Queue, url: str, what: str, kind: str, message: str, details: dict[str, Any]
) -> None:
    job = await run(queue, url, "raises", what, JobOptions(attempts=2))
    assert job.error is not None
    assert (job.state, job.error.kind, job.error.message, job.error.details) == ("failed", kind, message, details)
    assert job.attempts_made == (1 if kind in ("poison", "own") else 2)
    if what == "later":
        (delayed,) = [event for event in await queue.get_history(job.id) if event.type == "delayed"]
        assert delayed.fields["due_at"] == delayed.at + 20


def test_an_error_keeps_its_fields_on_the_way() -> None:
    there = rebuild(describe(InvalidOption("width", "is too large")))
    assert isinstance(there, InvalidOption)
    assert (there.field, there.problem, str(there)) == ("width", "is too large", "width: is too large")


# ── what cannot be ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("target", ["", "module", "module:", ":function", "a b:c", "__main__:process", "m:f()"])
def test_a_target_that_cannot_be_one_is_refused_at_once(target: str) -> None:
    with pytest.raises(InvalidOption, match="target"):
        Sandbox(target)
    with pytest.raises(InvalidOption, match="jobs_per_process"):
        Sandbox("m:f", jobs_per_process=0)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("no.such.module:f", "No module named 'no'"),
        (f"{MODULE}:no_such_function", "has no attribute 'no_such_function'"),
        (f"{MODULE}:jobs", "is no function"),
    ],
)
async def test_a_function_that_cannot_be_imported_fails_the_worker_and_no_job(
    queue: Queue, url: str, target: str, problem: str
) -> None:
    job = await queue.add("paint")
    with pytest.raises(InvalidOption, match=problem):
        await Worker(queue.name, Sandbox(target), url).run()
    assert await types(queue, job.id) == ["added"]


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("how", "message", "details"),
    [
        ("exit", "the processor's process ended with status 7", {}),
        ("segfault", "the processor's process was killed by SIGSEGV", {"signal": "SIGSEGV"}),
        (
            "kill",
            "the processor's process was killed by SIGKILL; did the machine run out of memory?",
            {"signal": "SIGKILL"},
        ),
    ],
)
async def test_a_crash_costs_an_attempt_and_no_more(
    queue: Queue, url: str, how: str, message: str, details: dict[str, Any]
) -> None:
    job = await run(queue, url, "dies", how, JobOptions(attempts=2))
    assert (job.state, job.attempts_made, job.stalled) == ("completed", 2, 0)
    (again,) = [event for event in await queue.get_history(job.id) if event.type == "waiting"]
    assert again.fields["error"] == {"kind": "transient", "message": message, "details": details}


async def test_jobs_that_kill_their_process_fail_alone(queue: Queue, url: str) -> None:
    bad = [(await queue.add("paint", "kill", JobOptions(attempts=1))).id for _ in range(3)]
    good = [(await queue.add("paint", "nothing")).id for _ in range(12)]
    async with Worker(queue.name, sandbox("dies"), url, concurrency=2):
        failed, completed = await ended(queue, *bad), await ended(queue, *good)
    assert {job.state for job in failed} == {JobState.FAILED}
    assert {job.state for job in completed} == {JobState.COMPLETED}


async def test_an_idle_process_that_was_killed_is_replaced_and_fails_no_job(queue: Queue, url: str) -> None:
    worker = Worker(queue.name, sandbox("echo"), url)
    async with worker:
        await ended(queue, (await queue.add("paint")).id)
        (first,) = processes(worker)
        os.kill(first, signal.SIGKILL)
        await wait_until(lambda: not processes(worker))
        (job,) = await ended(queue, (await queue.add("paint")).id)
    result = job.result_as(Result)
    assert result is not None
    assert result.pid != first


# ── stopping ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("function", ["listens", "listens_async"])
async def test_a_canceled_one_that_listens_stops_with_proof_and_its_process_lives(
    queue: Queue, url: str, function: str
) -> None:
    job = await queue.add("paint")
    worker = Worker(queue.name, sandbox(function), url)
    async with worker:
        await until_it_told(queue, job.id)
        (pid,) = processes(worker)
        await queue.cancel(job.id, by="me")
        (job,) = await ended(queue, job.id)
        assert processes(worker) == {pid}
    assert job.state is JobState.CANCELED
    assert (await queue.get_history(job.id))[-1].fields["details"] == {"by": "me", "pid": pid}


@pytest.mark.parametrize("why", ["timeout", "cancel"])
@pytest.mark.parametrize("function", ["sleeps_async", "talks", "cleans_up", "clings"])
async def test_one_that_has_to_stop_is_asked_then_terminated_then_killed(
    queue: Queue, url: str, tmp_path: Path, function: str, why: str
) -> None:
    note = tmp_path / "note"
    job = await queue.add("paint", str(note), JobOptions(timeout_ms=400 if why == "timeout" else 0))
    other = await queue.add("paint", str(tmp_path / "other"), JobOptions(id="other"))
    worker = Worker(queue.name, sandbox(function), url, cancel_grace_ms=600)
    async with worker:
        await until_it_told(queue, job.id)
        (pid,) = processes(worker)
        if why == "cancel":
            await queue.cancel(job.id)
        (job,) = await ended(queue, job.id)
        await until_it_told(queue, other.id)
        assert (pid in processes(worker)) is (function in ("sleeps_async", "talks"))
        await worker.stop(grace_s=0)
    if why == "timeout":
        assert job.error is not None
        assert (job.reason, job.error.kind, job.error.details) == ("timeout", "timeout", {})
    else:
        assert job.state is JobState.CANCELED
        assert (await queue.get_history(job.id))[-1].fields["details"] == {}
    wrote = {"talks": "heard", "cleans_up": "clean"}.get(function)
    assert (note.read_text() if note.exists() else None) == wrote
    assert not is_running(pid)
    assert (await types(queue, other.id))[-1] == "waiting", "handed back"


async def test_one_that_survives_sigterm_keeps_its_result_and_gets_no_other_job(queue: Queue, url: str) -> None:
    job = await queue.add("paint", None, JobOptions(timeout_ms=200))
    async with Worker(queue.name, sandbox("survives"), url, cancel_grace_ms=2000):
        (job,) = await ended(queue, job.id)
        (other,) = await ended(queue, (await queue.add("paint", "quick")).id)
    first, second = job.result_as(int), other.result_as(int)
    assert first is not None
    assert second is not None
    assert first != second


async def test_a_worker_may_be_stopped_while_its_first_process_starts(queue: Queue, url: str) -> None:
    job = await queue.add("paint")
    for pause_s in (0.0, 0.02, 0.1):
        worker = Worker(queue.name, sandbox("echo"), url)
        async with worker, asyncio.timeout(10):
            await asyncio.sleep(pause_s)
            await worker.stop()
        assert not processes(worker)
    assert (await types(queue, job.id))[0] == "added"


async def test_a_cancel_is_never_for_the_next_job_of_the_same_process(queue: Queue, url: str) -> None:
    first = await queue.add("paint")
    second = await queue.add("paint")
    async with Worker(queue.name, sandbox("listens"), url):
        await until_it_told(queue, first.id)
        await queue.cancel(first.id)
        await ended(queue, first.id)
        await until_it_told(queue, second.id)
        await asyncio.sleep(0.2)
        found = await queue.get_job(second.id)
        assert found is not None
        assert found.state is JobState.ACTIVE
        await queue.cancel(second.id)
        await ended(queue, second.id)


async def test_its_processes_end_with_a_worker_that_was_killed(queue: Queue, url: str) -> None:
    code = (
        "import asyncio, sys\n"
        "from orchestrator import Sandbox, Worker\n"
        f"worker = Worker({queue.name!r}, Sandbox('{MODULE}:clings'), {url!r})\n"
        "asyncio.run(worker.run())\n"
    )
    job = await queue.add("paint")
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as worker:
        await until_it_told(queue, job.id)
        found = await queue.get_job(job.id)
        assert found is not None
        assert is_running(found.progress)
        worker.kill()
        await wait_until(lambda: not is_running(found.progress))
