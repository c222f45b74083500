"""Adds of one turn of the event loop share a call: each keeps its place, its answer, its error and its own end."""

import asyncio
import contextvars
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from redis import exceptions as redis_errors

from orchestrator.deduplication import Deduplication
from orchestrator.errors import FlowRefused, GroupFull, KargahError, OutcomeUnknown, QueueFull, StoreUnavailable
from orchestrator.job import Job, JobOptions, JobState
from orchestrator.parent import Parent
from orchestrator.queue import Queue
from orchestrator.queue.adding import MAX_HEADERS
from orchestrator.queue.turn import MAX_TOGETHER, Turn
from orchestrator.scripts import Client, connect, end_tasks
from tests.conftest import wait_until
from tests.faultproxy import FaultProxy
from tests.invariants import check_queue
from tests.lua.scene import Scene, drain
from tests.servers import Server

Send: TypeAlias = Callable[[Sequence[int], float], Awaitable[Sequence[int | Exception]]]


@pytest.fixture
def own_server(runtime_folder: Path) -> Iterator[Server]:
    """A server that may be full."""
    server = Server("valkey", runtime_folder / "full")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def sizes(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each call had, in order."""
    sizes: list[int] = []
    evaluate = queue.scripts._evaluate

    async def noting(name: str, args: Sequence[str | bytes | int], until: float) -> Any:
        if name == "add_jobs":
            sizes.append((len(args) - 2) // 3)
        return await evaluate(name, args, until)

    monkeypatch.setattr(queue.scripts, "_evaluate", noting)
    return sizes


async def together(queue: Queue, *options: JobOptions | None) -> list[Any]:
    """Jobs or errors of adds that are made in one turn."""
    return await asyncio.gather(*(queue.add("paint", 1, each) for each in options), return_exceptions=True)


def ask(send: Send, count: int) -> list[asyncio.Task[int]]:
    """Callers that share a turn."""
    loop = asyncio.get_running_loop()
    turns: list[Turn[int, int]] = []

    async def join(number: int) -> int:
        if not turns:
            turns.append(Turn(loop, send, 1))
        return await turns[0].join(number, 1)

    return [loop.create_task(join(number)) for number in range(count)]


# ── one call ─────────────────────────────────────────────────────────────────────────────────────────


async def test_adds_of_one_turn_go_in_one_call(queue: Queue, sizes: list[int]) -> None:
    await queue.add("paint")
    jobs = await together(queue, *[None] * 20)
    assert sizes == [1, 20]
    assert len({job.id for job in jobs}) == 20
    assert (await queue.get_counts())["waiting"] == 21
    await check_queue(queue)


async def test_adds_one_after_the_other_go_alone(queue: Queue, sizes: list[int]) -> None:
    for _ in range(3):
        await queue.add("paint")
    assert sizes == [1, 1, 1]


async def test_the_first_adds_of_a_queue_name_it_once_and_keep_their_order(queue: Queue, sizes: list[int]) -> None:
    ids = [f"j{number}" for number in range(9)]
    await together(queue, *(JobOptions(id=job_id) for job_id in ids))
    assert sizes == [9]
    assert await drain(Scene(queue)) == ids


async def test_many_go_in_several_calls_and_keep_their_order(queue: Queue, sizes: list[int]) -> None:
    ids = [f"j{number:03}" for number in range(3 * MAX_TOGETHER + 4)]
    await queue.add("paint", opts=JobOptions(id="first"))
    await together(queue, *(JobOptions(id=job_id) for job_id in ids))
    assert sizes == [1, MAX_TOGETHER, MAX_TOGETHER, MAX_TOGETHER, 4]
    assert await drain(Scene(queue)) == ["first", *ids]


async def test_a_call_has_a_bound_of_bytes(queue: Queue, sizes: list[int]) -> None:
    await queue.add("paint")
    await asyncio.gather(*(queue.add("paint", "x" * 400_000) for _ in range(5)), queue.add("paint"))
    assert sizes == [1, 2, 2, 2]
    assert (await queue.get_counts())["waiting"] == 7


async def test_the_next_turn_does_not_wait_for_this_one(
    queue: Queue, server: Server, runtime_folder: Path, sizes: list[int]
) -> None:
    async with FaultProxy(runtime_folder / "p-turn", server.socket) as proxy:
        async with Queue(queue.name, proxy.url) as far:
            await far.add("paint")
            proxy.delay_s = 0.2
            first = asyncio.create_task(far.add("paint"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            turn = far._turn
            second = asyncio.create_task(far.add("paint"))
            await asyncio.sleep(0)
            assert far._turn is not turn
            assert not first.done()
            await asyncio.gather(first, second)


# ── each for itself ──────────────────────────────────────────────────────────────────────────────────


async def test_each_gets_its_own_answer_or_its_own_error(queue: Queue, sizes: list[int]) -> None:
    for job_id in ("there", "parent"):
        await queue.add("paint", opts=JobOptions(id=job_id))
    await queue.add("paint", opts=JobOptions(id="holder", deduplication=Deduplication("d")))
    await queue.set_group_max_waiting("g", 1)
    found = await together(
        queue,
        JobOptions(id="a"),
        JobOptions(id="b", group="g"),
        JobOptions(id="c", group="g"),
        JobOptions(id="there"),
        JobOptions(id="d", deduplication=Deduplication("d")),
        JobOptions(id="e", parent=Parent(queue.name, "parent")),
        JobOptions(id="f", parent=Parent(queue.name, "nobody")),
        JobOptions(id="g", delay_ms=60_000),
    )
    assert sizes == [1, 1, 1, 8]
    a, b, c, there, d, e, f, g = found
    assert (a.id, b.id, e.id) == ("a", "b", "e")
    assert isinstance(c, GroupFull)
    assert (there.id, there.duplicated) == ("there", True)
    assert (d.id, d.deduplicated) == ("holder", True)
    assert isinstance(f, FlowRefused)
    assert (g.state, g.due_at) == (JobState.DELAYED, g.created_at + 60_000)
    await check_queue(queue)


async def test_a_queue_with_room_for_some_takes_the_first_ones(queue: Queue) -> None:
    await queue.set_max_waiting(3)
    found = await together(queue, *[None] * 5)
    assert [type(each) for each in found] == [Job, Job, Job, QueueFull, QueueFull]
    assert (await queue.get_counts())["waiting"] == 3


async def test_one_id_twice_in_a_turn_is_one_job(queue: Queue) -> None:
    first, second = await together(queue, JobOptions(id="a"), JobOptions(id="a"))
    assert (first.duplicated, second.duplicated) == (False, True)
    assert [event.type for event in await queue.get_history("a")] == ["added"]


async def test_one_that_cannot_be_sent_hinders_no_other(queue: Queue, sizes: list[int]) -> None:
    await queue.add("paint")
    good, bad, other = await together(queue, None, JobOptions(priority=-1), None)
    assert isinstance(bad, KargahError)
    assert sizes == [1, 2]
    assert isinstance(good, Job)
    assert isinstance(other, Job)


async def test_a_cancelled_caller_takes_nobody_along(queue: Queue, sizes: list[int]) -> None:
    await queue.add("paint")
    tasks = [asyncio.create_task(queue.add("paint", opts=JobOptions(id=f"j{number}"))) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found] == [Job, asyncio.CancelledError, Job]
    assert sizes == [1, 2], "it left before the call was made"

    tasks = [asyncio.create_task(queue.add("paint", opts=JobOptions(id=f"k{number}"))) for number in range(3)]
    while len(sizes) < 3:
        await asyncio.sleep(0)
    tasks[0].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found] == [asyncio.CancelledError, Job, Job]
    await check_queue(queue)


async def test_the_call_ends_when_all_its_callers_have_left() -> None:
    ended: list[bool] = []

    async def send(asked: Sequence[int], until: float) -> Sequence[int]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return asked

    callers = ask(send, 2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await end_tasks(callers[0])
    await asyncio.sleep(0)
    assert not ended
    await end_tasks(callers[1])
    await wait_until(lambda: bool(ended))


async def test_an_error_that_comes_as_its_caller_leaves_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    async def send(asked: Sequence[int], until: float) -> Sequence[int | Exception]:
        callers[0].cancel()
        return [QueueFull("full") for _ in asked]

    callers = ask(send, 2)
    await asyncio.wait(callers)
    assert callers[0].cancelled()
    assert isinstance(callers[1].exception(), QueueFull)
    callers.clear()
    gc.collect()
    assert not caplog.records


async def test_who_leaves_before_the_loop_comes_round_leaves_the_others_their_call() -> None:
    calls: list[list[int]] = []

    async def send(asked: Sequence[int], until: float) -> Sequence[int]:
        calls.append(list(asked))
        return asked

    callers = ask(send, 3)
    asyncio.get_running_loop().call_soon(callers[0].cancel)
    await asyncio.sleep(0)
    found = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(each) for each in found] == [asyncio.CancelledError, int, int]
    assert calls == [[1, 2]]

    lone = ask(send, 1)
    asyncio.get_running_loop().call_soon(lone[0].cancel)
    await asyncio.wait(lone)
    assert lone[0].cancelled()
    assert len(calls) == 1, "nothing is sent for nobody"


async def test_who_is_alone_takes_its_call_along() -> None:
    ended: list[bool] = []

    async def send(asked: Sequence[int], until: float) -> Sequence[int]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return asked

    (caller,) = ask(send, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await end_tasks(caller)
    assert ended == [True]
    assert caller.cancelled()


async def test_who_waits_for_a_call_that_is_cancelled_is_too() -> None:
    async def send(asked: Sequence[int], until: float) -> Sequence[int]:
        return asked

    loop = asyncio.get_running_loop()
    turn = Turn(loop, send, 1)
    callers = [loop.create_task(turn.join(number, 1)) for number in range(2)]
    while turn._task is None:
        await asyncio.sleep(0)
    turn._task.cancel()
    await asyncio.wait(callers)
    assert [caller.cancelled() for caller in callers] == [True, True]
    assert not turn.is_open_on(loop)


def test_the_turn_of_a_loop_that_never_came_round_is_not_joined_in_another() -> None:
    async def send(asked: Sequence[int], until: float) -> Sequence[int]:
        return asked

    stopped, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    turn = Turn(stopped, send, 1)
    caller = stopped.create_task(turn.join(1, 1))
    assert turn.is_open_on(stopped)
    assert not turn.is_open_on(other)
    assert stopped.run_until_complete(caller) == 1
    assert not turn.is_open_on(stopped)
    stopped.close()
    other.close()


async def test_the_context_of_each_caller_stays_its_own(queue: Queue) -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

    async def add(name: str) -> tuple[str, str]:
        who.set(name)
        job = await queue.add(name)
        return who.get(), job.name

    assert await asyncio.gather(*(add(name) for name in ("ada", "bob"))) == [("ada", "ada"), ("bob", "bob")]


# ── trouble ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_lost_answer_repeats_the_call_for_all(queue: Queue, server: Server, runtime_folder: Path) -> None:
    for how in ("close", "swallow"):
        async with FaultProxy(runtime_folder / f"p-{how}", server.socket) as proxy:
            client = connect(proxy.url, timeout_s=0.15)
            far = Queue(f"{queue.name}-{how}", client)
            await far.add("paint")
            proxy.lose_reply("close" if how == "close" else "swallow")
            jobs = await together(far, *[None] * 10)
            assert proxy.lost == 1
            assert not any(job.duplicated for job in jobs)
            assert (await far.get_counts())["waiting"] == 11
            await check_queue(far)
            await client.aclose()


async def test_without_an_answer_each_learns_by_its_deadline_that_the_outcome_is_unknown(
    queue_name: str, server: Server, runtime_folder: Path
) -> None:
    async with FaultProxy(runtime_folder / "p-unknown", server.socket) as proxy:
        async with Queue(queue_name, proxy.url, deadline_s=0.3) as queue:
            await queue.add("paint")
            loop = asyncio.get_running_loop()
            async with proxy.blackhole():
                began = loop.time()
                found = await together(queue, *[None] * (2 * MAX_TOGETHER))
                took_s = loop.time() - began
    assert {type(each) for each in found} == {OutcomeUnknown}
    assert len({id(each) for each in found}) == len(found), "each may be raised, noted and logged for itself"
    assert "add_jobs" in str(found[-1])
    assert isinstance(found[-1].__cause__, redis_errors.RedisError | TimeoutError)
    assert took_s < 2


async def test_a_full_server_refuses_all_of_a_call(queue_name: str, own_server: Server) -> None:
    async with Queue(queue_name, own_server.url) as queue:
        await queue.add("paint")
        client: Any = queue.client
        await client.config_set("maxmemory", 1)
        found = await together(queue, None, None, JobOptions(group="g"))
        await client.config_set("maxmemory", 0)
        assert [type(each) for each in found] == [StoreUnavailable] * 3
        assert len({id(each) for each in found}) == 3
        assert (await queue.get_counts())["waiting"] == 1


# ── what is remembered of options ────────────────────────────────────────────────────────────────────


async def test_options_that_come_again_mean_the_same(queue_name: str, client: Client) -> None:
    queue = Queue(queue_name, client, default_job_options=JobOptions(attempts=4))
    options = JobOptions(priority=3)
    for _ in range(2):
        job = await queue.add("paint", opts=options)
        assert (job.name, job.header.priority, job.header.attempts) == ("paint", 3, 4)
        other = await queue.add("draw", opts=options)
        assert (other.name, other.header.priority, other.header.attempts) == ("draw", 3, 4)
        plain = await queue.add("paint")
        assert (plain.header.priority, plain.header.attempts) == (0, 4)
        named = await queue.add("paint", opts=JobOptions(id="mine"))
        assert named.id == "mine"


async def test_no_more_than_some_options_are_remembered(queue: Queue) -> None:
    for number in range(MAX_HEADERS + 10):
        queue._check("paint", None, JobOptions(priority=number))
    assert 0 < len(queue._headers) <= MAX_HEADERS


async def test_a_job_of_a_trace_has_its_own_header(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    options = JobOptions(priority=3)
    assert queue._check("paint", None, options).header.trace_context == ""
    for module in ("orchestrator.queue.adding", "orchestrator.job"):
        monkeypatch.setattr(f"{module}.trace_context", lambda: "00-1-2-01")
    assert queue._check("paint", None, options).header.trace_context == "00-1-2-01"
    untraced = JobOptions(priority=3, telemetry=False)
    assert queue._check("paint", None, untraced).header.trace_context == ""
