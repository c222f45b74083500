"""The one seam to Redis: what it does when Redis is slow, silent, away, or asks to try again."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import exceptions as redis_errors

from orchestrator.errors import LayoutMismatch, OutcomeUnknown, StoreUnavailable, WrongState
from orchestrator.queue import Queue
from orchestrator.scripts import Client, Scripts, connect, end_tasks
from tests.faultproxy import FaultProxy
from tests.lua.scene import Scene
from tests.servers import Server


def failing(times: int, problem: Callable[[], Exception]) -> tuple[Callable[[], Any], list[int]]:
    """A call that fails some times and then answers; and a list of its tries."""
    tries: list[int] = []

    async def call() -> str:
        tries.append(1)
        if len(tries) <= times:
            raise problem()
        return "answer"

    return call, tries


@pytest.mark.parametrize(
    "problem",
    [
        lambda: redis_errors.ConnectionError("closed"),
        lambda: redis_errors.TimeoutError("silent"),
        lambda: redis_errors.BusyLoadingError("loading the dataset"),
        lambda: redis_errors.TryAgainError("Multiple keys request during rehashing of slot"),
        lambda: redis_errors.ClusterDownError("The cluster is down"),
        lambda: redis_errors.ReadOnlyError("You can't write against a read only replica."),
        lambda: redis_errors.MasterDownError("Link with MASTER is down"),
        lambda: redis_errors.ResponseError("BUSY Redis is busy running a script."),
        lambda: redis_errors.ResponseError("UNBLOCKED force unblock from blocking operation"),
        lambda: OSError("no route"),
        lambda: TimeoutError(),
    ],
    ids=lambda problem: type(problem()).__name__,
)
async def test_what_passes_is_tried_again_until_it_is_answered(queue: Queue, problem: Callable[[], Exception]) -> None:
    call, tries = failing(3, problem)
    assert await queue.scripts.retrying("it", call) == "answer"
    assert len(tries) == 4


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        (redis_errors.ResponseError("WRONG_STATE job a is active"), WrongState),
        (redis_errors.ResponseError("LAYOUT_MISMATCH 2.0"), LayoutMismatch),
        (redis_errors.OutOfMemoryError("command not allowed"), StoreUnavailable),
        (redis_errors.ResponseError("MISCONF Errors writing to the AOF file"), StoreUnavailable),
        (redis_errors.ResponseError("ERR no such thing"), redis_errors.ResponseError),
        (redis_errors.ResponseError("BUSYGROUP there already"), redis_errors.ResponseError),
    ],
    ids=str,
)
async def test_what_does_not_pass_is_raised_at_once_by_its_name(
    queue: Queue, problem: Exception, named: type[Exception]
) -> None:
    call, tries = failing(99, lambda: problem)
    with pytest.raises(named):
        await queue.scripts.retrying("it", call)
    assert len(tries) == 1


async def test_the_outcome_is_unknown_after_the_deadline(client: Client, queue: Queue) -> None:
    scripts = Scripts(client, queue.keys, deadline_s=0.2)
    call, tries = failing(99, lambda: redis_errors.ConnectionError("closed"))
    with pytest.raises(OutcomeUnknown, match="closed"):
        await scripts.retrying("it", call)
    assert len(tries) > 1


async def test_a_call_into_a_black_hole_ends_with_the_deadline(
    queue: Queue, server: Server, runtime_folder: Path
) -> None:
    async with FaultProxy(runtime_folder / "hole.sock", server.socket) as proxy:
        client = connect(proxy.url, timeout_s=0.1)
        async with proxy.blackhole():
            with pytest.raises(OutcomeUnknown):
                await Queue(queue.name, client, deadline_s=0.4).get_counts()
        assert (await Queue(queue.name, client).get_counts())["waiting"] == 0
        await client.aclose()


async def test_a_cancelled_call_leaves_its_answer_to_nobody_else(
    queue: Queue, server: Server, runtime_folder: Path
) -> None:
    scene = Scene(queue)
    ids = [await scene.add(f"j{number}") for number in range(10)]
    async with FaultProxy(runtime_folder / "slow.sock", server.socket) as proxy:
        client = connect(proxy.url, max_connections=5)
        slow = Queue(queue.name, client)
        proxy.delay_s = 0.01
        for number in range(100):
            task = asyncio.create_task(slow.get_job(ids[number % 10]))
            await asyncio.wait([task], timeout=0.0005 * (number % 30))
            task.cancel()
            await asyncio.wait([task])
        proxy.delay_s = 0
        found = await asyncio.gather(*(slow.get_job(ids[number % 10]) for number in range(300)))
        assert [job.id for job in found if job] == [ids[number % 10] for number in range(300)]
        await client.aclose()


async def test_a_server_that_is_not_there_gives_a_named_error_within_the_deadline(runtime_folder: Path) -> None:
    async with Queue("paint", f"unix://{runtime_folder}/nobody", deadline_s=0.3) as queue:
        with pytest.raises(OutcomeUnknown, match="no answer"):
            await queue.add("paint")
        with pytest.raises(OutcomeUnknown):
            await queue.get_counts()


async def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    """As one does that is connecting by redis-py on Python 3.11."""
    swallowed = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await end_tasks(task)
    assert swallowed.is_set()
    assert task.cancelled()
