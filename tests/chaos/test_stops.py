"""Workers that are told to stop while they work, and queues that are paused: nothing is lost, nothing stalls."""

import asyncio
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.worker import Worker
from tests.chaos.checks import Spawn, assert_completed_once, count
from tests.chaos.worker_process import Work
from tests.conftest import wait_until
from tests.invariants import check_history, check_queue
from tests.servers import Server

LONG_S = 60.0


async def until_count(queue: Queue, state: str, least: int) -> None:
    async def are() -> bool:
        return await count(queue, state) >= least

    await wait_until(are, LONG_S)


async def exited(process: "subprocess.Popen[bytes]") -> int:
    return await asyncio.to_thread(process.wait, 30)


async def test_eight_running_jobs_end_with_their_results_when_their_worker_is_told_to_stop(
    queue: Queue, spawn: Spawn
) -> None:
    """G11 of shared/cases.md."""
    ids = [f"j{number}" for number in range(8)]
    for job_id in ids:
        await queue.add("work", Work(ms=1000), JobOptions(id=job_id))
    worker = spawn(slots=8, grace_s=5)
    await until_count(queue, "active", 8)
    worker.send_signal(signal.SIGTERM)
    assert await exited(worker) == 0
    assert await count(queue, "completed") == 8
    for job_id in ids:
        assert await assert_completed_once(queue, job_id) == 1


@pytest.mark.slow
async def test_twenty_stops_under_load_stall_nothing_and_hand_back_what_is_too_long(queue: Queue, spawn: Spawn) -> None:
    """A7 of shared/reliability.md. The lease is far longer than the test: what comes back was handed back."""
    short = [f"j{number}" for number in range(600)]
    for job_id in short:
        await queue.add("work", Work(ms=30), JobOptions(id=job_id))
    options = {"slots": 4, "lease_ms": 600_000, "grace_s": 10}
    workers = [spawn(**options) for _ in range(4)]
    stopped = []
    for stop in range(20):
        await until_count(queue, "completed", stop * 25 + 8)
        workers[stop % 4].send_signal(signal.SIGTERM)
        stopped.append(workers[stop % 4])
        workers[stop % 4] = spawn(**options)
    await until_count(queue, "completed", len(short))
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    ends = {await exited(worker) for worker in (*stopped, *workers)}
    assert ends <= {0, -signal.SIGTERM}  # one may not have begun yet
    for job_id in short:
        await assert_completed_once(queue, job_id)
        assert "stalled" not in [event.type for event in await queue.get_history(job_id)]
    await check_queue(queue)


async def test_jobs_longer_than_the_grace_are_handed_back_when_it_ends(queue: Queue, spawn: Spawn) -> None:
    for number in range(4):
        await queue.add("work", Work(ms=600_000), JobOptions(id=f"j{number}"))
    worker = spawn(slots=3, lease_ms=600_000, grace_s=0.2)
    await until_count(queue, "active", 3)
    worker.send_signal(signal.SIGTERM)
    assert await exited(worker) == 0
    assert (await count(queue, "waiting"), await count(queue, "active")) == (4, 0)
    for number in range(3):
        job = await queue.get_job(f"j{number}")
        assert job is not None
        assert (job.attempts_made, job.stalled) == (0, 0)
        history = await queue.get_history(job.id)
        check_history(history)
        assert [event.type for event in history] == ["added", "active", "waiting"]


@pytest.mark.parametrize("restart", [False, True], ids=["as it is", "after a restart of the server"])
async def test_a_paused_queue_stands_still_and_goes_on_whole(
    runtime_folder: Path, queue_name: str, restart: bool
) -> None:
    """G22 of shared/cases.md."""
    server = Server("valkey", runtime_folder / f"paused-{restart}", "--appendonly", "yes")
    server.start()
    first_may_end = asyncio.Event()
    order: list[str] = []

    async def process(job: ActiveJob) -> str:
        order.append(job.id)
        if len(order) == 1:
            await first_may_end.wait()
        return "done"

    try:
        async with Queue(queue_name, server.url) as queue, Worker(queue_name, process, server.url) as worker:
            ids = [(await queue.add("paint")).id for _ in range(20)]
            await until_count(queue, "active", 1)
            await queue.pause()
            first_may_end.set()
            await until_count(queue, "completed", 1)
            if restart:
                server.kill()
                server.start()
            looked = worker.queue.scripts.answered_at
            before = await queue.get_counts()
            assert (before["waiting"], before["active"], before["completed"]) == (19, 0, 1)

            def has_looked_again() -> bool:
                answered_at = worker.queue.scripts.answered_at
                return answered_at is not None and looked is not None and answered_at > looked + 3

            await wait_until(has_looked_again)
            assert await queue.get_counts() == before
            assert await queue.is_paused()
            await queue.resume()
            await until_count(queue, "completed", 20)
            assert order == ids
    finally:
        server.stop()
