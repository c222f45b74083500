"""Waiting for a job's result: no gap between subscribing and reading, whatever becomes of the job."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.errors import JobFailed, JobNotFound, JobWasCanceled, UnrecoverableError
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.scripts import connect
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.faultproxy import FaultProxy
from tests.lua.scene import Scene
from tests.orchestrator.running import ended
from tests.servers import Server

LONG = "x" * 3000
CANCEL = b'{"by":"me","reason":"enough"}'


async def subscribers(queue: Queue) -> int:
    client: Any = queue.client
    ((_, count),) = await client.pubsub_numsub(queue.keys.live)
    return int(count)


async def until_waiting(queue: Queue) -> None:
    async def is_subscribed() -> bool:
        return await subscribers(queue) == 1

    await wait_until(is_subscribed)


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
@pytest.mark.parametrize("result", [{"ok": [None, "é"]}, None, LONG], ids=["small", "none", "large"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "removed"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_result_comes_to_those_who_wait_before_and_after(
    queue: Queue, url: str, result: Any, kept: bool, when: str
) -> None:
    async def process(job: ActiveJob) -> Any:
        return result

    options = JobOptions(remove_on_complete=not kept)
    job = await queue.add("paint", None, options)
    if when == "before":
        waiting = asyncio.create_task(queue.wait_until_finished(job.id, timeout_s=20))
        await until_waiting(queue)
        async with Worker(queue.name, process, url):
            assert await waiting == result
    else:
        async with Worker(queue.name, process, url):
            await ended(queue, job.id)
        assert await queue.wait_until_finished(job.id, timeout_s=20) == result


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
async def test_results_that_come_at_any_moment_of_the_wait_are_not_missed(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> str:
        return job.id

    async with Worker(queue.name, process, url, concurrency=4):
        for removed in (True, False):
            jobs = [await queue.add("paint", None, JobOptions(remove_on_complete=removed)) for _ in range(100)]
            results = await asyncio.gather(*(queue.wait_until_finished(job.id, timeout_s=20) for job in jobs))
            assert results == [job.id for job in jobs]


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failure_and_a_cancellation_are_raised_with_their_reasons(
    queue: Queue, url: str, removed: bool, when: str
) -> None:
    async def process(job: ActiveJob) -> None:
        raise UnrecoverableError("no such model", model="x")

    options = JobOptions(remove_on_fail=removed)
    job = await queue.add("paint", None, options)
    canceled = await queue.add("paint", None, JobOptions(remove_on_fail=removed, delay_ms=100_000))
    waits = [asyncio.create_task(queue.wait_until_finished(job_id, timeout_s=20)) for job_id in (job.id, canceled.id)]
    if when == "before":
        await until_waiting(queue)
    async with Worker(queue.name, process, url):
        await ended(queue, job.id)
    try:
        await queue.cancel(canceled.id, "me", "enough")
    except JobNotFound:
        assert removed
    if when == "after":
        await asyncio.wait(waits)
        waits = [
            asyncio.create_task(queue.wait_until_finished(job_id, timeout_s=20)) for job_id in (job.id, canceled.id)
        ]
    with pytest.raises(JobFailed, match="no such model") as failed:
        await waits[0]
    assert (failed.value.job_id, failed.value.reason, failed.value.kind) == (job.id, "error", "poison")
    assert failed.value.details == {"model": "x"}
    with pytest.raises(JobWasCanceled, match="enough") as stopped:
        await waits[1]
    assert (stopped.value.by, stopped.value.reason) == ("me", "enough")


async def test_a_job_that_expired_has_failed(scene: Scene) -> None:
    await scene.add("a", expires_ms=10_000)
    waiting = asyncio.create_task(scene.queue.wait_until_finished("a", timeout_s=20))
    await until_waiting(scene.queue)
    await scene.pass_deadlines()
    await scene.claim()
    with pytest.raises(JobFailed) as failed:
        await waiting
    assert (failed.value.reason, failed.value.kind, failed.value.details) == ("expired", "expired", {})


async def test_a_retry_by_hand_and_its_own_attempts_are_waited_for(scene: Scene) -> None:
    await scene.failed("a")
    with pytest.raises(JobFailed):
        await scene.queue.wait_until_finished("a", timeout_s=20)
    await scene.queue.retry("a")
    waiting = asyncio.create_task(scene.queue.wait_until_finished("a", timeout_s=20))
    await until_waiting(scene.queue)
    await scene.finish((await scene.claim()).claims[0], "delayed", b"{}", 0)
    await scene.finish((await scene.claim()).claims[0], "completed", b"5")
    assert await waiting == 5


async def test_who_waits_for_nothing_hears_so_at_once(scene: Scene) -> None:
    with pytest.raises(JobNotFound):
        await scene.queue.wait_until_finished("nobody", timeout_s=20)
    await scene.add("a")
    await scene.queue.remove("a")
    with pytest.raises(JobNotFound):
        await scene.queue.wait_until_finished("a", timeout_s=20)
    await scene.add("b")
    waiting = asyncio.create_task(scene.queue.wait_until_finished("b", timeout_s=20))
    await until_waiting(scene.queue)
    await scene.queue.remove("b")
    with pytest.raises(JobNotFound, match="removed"):
        await waiting


async def test_waiting_ends_in_time_and_leaves_nothing_behind(scene: Scene) -> None:
    await scene.add("a")
    before = len(asyncio.all_tasks())
    with pytest.raises(TimeoutError):
        await scene.queue.wait_until_finished("a", timeout_s=0.05)
    with pytest.raises(TimeoutError):
        await scene.queue.wait_until_finished("a", timeout_s=0)
    assert len(asyncio.all_tasks()) == before

    async def is_gone() -> bool:
        return await subscribers(scene.queue) == 0

    await wait_until(is_gone)


async def test_however_many_wait_there_is_one_subscription(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> str:
        return job.id

    jobs = [await queue.add("paint") for _ in range(300)]
    waiting = asyncio.gather(*(queue.wait_until_finished(job.id, timeout_s=60) for job in jobs))
    await until_waiting(queue)
    async with Worker(queue.name, process, url, concurrency=4):
        assert await waiting == [job.id for job in jobs]


async def test_an_outage_while_waiting_loses_no_result(scene: Scene, server: Server, runtime_folder: Path) -> None:
    await scene.add("a", remove_on_complete=True)
    async with FaultProxy(runtime_folder / "waiting", server.socket) as proxy:
        far = connect(proxy.url)
        queue = Queue(scene.queue.name, far)
        waiting = asyncio.create_task(queue.wait_until_finished("a", timeout_s=30))
        await until_waiting(scene.queue)
        proxy.cut()
        await scene.finish((await scene.claim()).claims[0], "completed", b'"%s"' % LONG.encode())
        assert await waiting == LONG
        await far.aclose()
