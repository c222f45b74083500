"""Processors that hold up their worker's event loop: a live worker keeps its jobs, a stopped one loses them."""

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.service import duties
from tests.chaos.conftest import Spawn
from tests.chaos.test_lost_workers import LONG_S, assert_completed_once, count, ledger
from tests.chaos.worker_process import Work
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.orchestrator.running import types

LEASE_MS = 1000
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
        await queue.add("work", Work(ms=2500, block=way), JobOptions(id=job_id, max_stalled=5))
    workers = [spawn(slots=2, lease_ms=LEASE_MS, interval_ms=200) for _ in range(5)]
    async with duties(queue, lease_ms=LEASE_MS, interval_ms=200):
        await wait_until(have_completed(queue, 20), LONG_S)
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    assert {worker.wait(20) for worker in workers} == {0}
    for job_id in ids:
        assert await assert_completed_once(queue, job_id) == 1
        assert await types(queue, job_id) == ["added", "active", "completed"], "and no stall"
    await check_queue(queue)
