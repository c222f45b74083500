"""Processors that hold up their worker's event loop: a live worker keeps its jobs, a stopped one loses them."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.errors import LeaseLost
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.scripts import Finish, Report
from orchestrator.service import duties
from orchestrator.worker import Worker
from tests.chaos.checks import LONG_S, Spawn, assert_completed_once, count, ledger
from tests.chaos.worker_process import Work
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.orchestrator.running import types

LEASE_MS = 2000
PATIENT_LEASE_MS = 4000
"""Where a stall would be a failure: a busy machine may take a second until a new process has imported redis-py."""
WAYS = ("sleep", "python", "gil")


def have_completed(queue: Queue, jobs: int) -> Callable[[], Awaitable[bool]]:
    async def have() -> bool:
        return await count(queue, "completed") == jobs

    return have


def has_started(queue: Queue, job_id: str) -> Callable[[], Awaitable[bool]]:
    async def has() -> bool:
        return bool(await ledger(queue.client, queue.name, job_id))

    return has


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_20_jobs_that_block_the_loop_for_longer_than_the_lease_complete_with_one_run_each(
    queue: Queue, spawn: Spawn, way: str
) -> None:
    ids = [f"j{number}" for number in range(20)]
    for job_id in ids:
        await queue.add("work", Work(ms=5000, block=way), JobOptions(id=job_id, max_stalled=5))
    workers = [spawn(slots=2, lease_ms=PATIENT_LEASE_MS, interval_ms=200) for _ in range(4 if way == "python" else 10)]
    async with duties(queue, lease_ms=PATIENT_LEASE_MS, interval_ms=200):
        await wait_until(have_completed(queue, 20), 2 * LONG_S)
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    assert {worker.wait(20) for worker in workers} == {0}
    for job_id in ids:
        assert await assert_completed_once(queue, job_id) == 1
        assert await types(queue, job_id) == ["added", "active", "completed"], "and no stall"
    await check_queue(queue)


@pytest.mark.slow
async def test_a_loop_that_is_blocked_for_ten_leases_keeps_its_job(queue: Queue, spawn: Spawn) -> None:
    for way in WAYS:
        await queue.add("work", Work(ms=20_000, block=way), JobOptions(id=way))
    for _ in WAYS:
        spawn(lease_ms=2000, interval_ms=200)
    async with duties(queue, lease_ms=2000, interval_ms=200):
        await wait_until(have_completed(queue, 3), LONG_S)
    for way in WAYS:
        assert await types(queue, way) == ["added", "active", "completed"]


async def test_a_blocked_worker_that_is_stopped_for_less_than_its_lease_keeps_its_job(
    queue: Queue, spawn: Spawn
) -> None:
    worker = spawn(lease_ms=PATIENT_LEASE_MS, interval_ms=200)
    job = await queue.add("work", Work(ms=5000, block="sleep"))
    await wait_until(has_started(queue, job.id), LONG_S)
    worker.send_signal(signal.SIGSTOP)
    async with duties(queue, lease_ms=PATIENT_LEASE_MS, interval_ms=200):
        await asyncio.sleep(1.5)  # the stop itself
        worker.send_signal(signal.SIGCONT)
        await wait_until(have_completed(queue, 1), LONG_S)
    assert await types(queue, job.id) == ["added", "active", "completed"]


async def test_a_blocked_worker_that_is_stopped_for_longer_loses_its_job_and_is_fenced(
    queue: Queue, url: str, spawn: Spawn
) -> None:
    zombie = spawn(lease_ms=LEASE_MS, interval_ms=200)
    job = await queue.add("work", Work(ms=1500, block="sleep"))
    await wait_until(has_started(queue, job.id), LONG_S)
    assert children_of(zombie.pid), "it has a keeper"
    zombie.send_signal(signal.SIGSTOP)
    held = await queue.get_job(job.id)
    assert held is not None
    assert held.lease is not None
    runs: list[str] = []

    async def process(active: ActiveJob) -> str:
        runs.append(active.lease)
        await active.update_progress(100)
        return active.lease

    async with Worker(queue.name, process, url, lease_ms=LEASE_MS, interval_ms=200):
        await wait_until(have_completed(queue, 1), LONG_S)
        before = await queue.get_history(job.id)
        zombie.send_signal(signal.SIGCONT)

        async def has_woken() -> bool:
            return f"end {held.lease}" in await ledger(queue.client, queue.name, job.id)

        await wait_until(has_woken, LONG_S)
        zombie.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(zombie.wait, 20) == 0
    assert len(runs) == 1, "exactly one rerun"
    assert [event.type for event in before].count("stalled") == 1
    with pytest.raises(LeaseLost):
        await queue.scripts.update_progress(job.id, held.lease, Report(99, "", b"1"))
    late = Finish(job.id, held.lease, "completed", b'"late"')
    answer = await queue.scripts.move_to_finished("1-late", "late:0", "late", LEASE_MS, 200, 0, [late])
    assert answer.outcomes == ["LEASE_LOST"]
    assert await queue.get_history(job.id) == before
    winner = await queue.get_job(job.id)
    assert winner is not None
    assert (winner.state, winner.result_as(str)) == (JobState.COMPLETED, runs[0])


async def test_a_job_that_blocks_the_loop_past_its_timeout_is_let_go(queue: Queue, url: str, spawn: Spawn) -> None:
    options = JobOptions(timeout_ms=500, max_stalled=0)
    job = await queue.add("work", Work(ms=60_000, block="sleep"), options)
    spawn(lease_ms=LEASE_MS, interval_ms=200, cancel_grace_ms=500)
    await wait_until(has_started(queue, job.id), LONG_S)
    async with duties(queue, lease_ms=LEASE_MS, interval_ms=200):

        async def has_failed() -> bool:
            return await count(queue, "failed") == 1

        await wait_until(has_failed, LONG_S / 2)
    found = await queue.get_job(job.id)
    assert found is not None
    assert found.reason == "stalled"


async def test_a_keeper_ends_with_its_worker_however_that_ends(queue: Queue, spawn: Spawn) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        job = await queue.add("work", Work(ms=100))
        worker = spawn(lease_ms=LEASE_MS, interval_ms=200)
        await wait_until(has_started(queue, job.id), LONG_S)
        (keeper,) = children_of(worker.pid)
        worker.send_signal(number)
        await asyncio.to_thread(worker.wait, 20)
        await wait_until(lambda pid=keeper: not is_running(pid))  # type: ignore[misc]
