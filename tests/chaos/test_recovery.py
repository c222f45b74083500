"""Who recovers what others left: killed on the job, hasty, or with a wrong clock, they lose and double nothing."""

import asyncio
import signal
import time
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from orchestrator.service import duties
from orchestrator.worker import Worker
from tests.chaos.checks import IS_FULL, LONG_S, Load, Spawn, assert_completed_once, count, ledger, size, until_completed
from tests.chaos.worker_process import Work
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.lua.scene import Scene

SCAN_MS = 200
LATE_MS = 20_000
"""Far less than the clocks are wrong, far more than a busy machine takes to start a worker."""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_another_recovers_when_the_one_that_looks_is_killed_while_it_looks(
    scene: Scene, queue: Queue, spawn: Spawn, when: str
) -> None:
    took_ms: list[int] = []
    options: dict[str, Any] = {"lease_ms": 1000, "interval_ms": SCAN_MS}
    async with duties(queue, **options):
        for number in range(size(3, 25)):
            await scene.add(f"j{number}")
            dying = spawn(only_duties=1, crash_at=2, when=when, crash_on="move_stalled_to_wait", **options)
            (claim,) = (await scene.scripts.move_to_active(scene.token(), "w:0", "dead", 300, SCAN_MS, 1)).claims

            async def is_back() -> bool:
                return await count(queue, "active") == 0

            await wait_until(is_back)
            history = await queue.get_history(claim.job.id)
            claimed, back = (next(event for event in history if event.type == kind) for kind in ("active", "stalled"))
            took_ms.append(back.at - claimed.at - 300)
            assert await asyncio.to_thread(dying.wait, LONG_S) == -signal.SIGKILL
            await queue.remove(claim.job.id)
    print(f"recovered after {took_ms} ms")
    assert max(took_ms) <= 2 * SCAN_MS


async def _never(job: ActiveJob) -> None:
    raise AssertionError("a paused queue starts nothing")


async def test_a_job_with_retries_whose_worker_is_killed_is_in_one_state_all_the_time(
    queue: Queue, spawn: Spawn
) -> None:
    options = JobOptions(id="j", attempts=3, backoff=Backoff("fixed", 10))
    first = spawn(lease_ms=600, interval_ms=SCAN_MS)
    await queue.add("work", Work(ms=60_000), options)

    async def is_active() -> bool:
        return await count(queue, "active") == 1

    await wait_until(is_active)
    first.kill()
    killed_at = time.monotonic()
    states: list[str] = []

    async def is_back() -> bool:
        counts = await queue.get_counts()
        held = [state for state, jobs in counts.items() for _ in range(jobs) if state != "prioritized"]
        assert len(held) == 1, counts
        states.append(held[0])
        return held == ["waiting"]

    await queue.pause()
    async with Worker(queue.name, _never, queue.client, lease_ms=600, interval_ms=SCAN_MS):
        await wait_until(is_back)
    assert time.monotonic() - killed_at <= 0.6 + SCAN_MS / 1000 + 1
    await queue.resume()
    job = await queue.get_job("j")
    assert job is not None
    assert job.stalled == 1
    assert set(states) == {"active", "waiting"}

    async def process(active: ActiveJob) -> str:
        return active.lease

    async with Worker(queue.name, process, queue.client):
        await until_completed(queue, "j")
    await check_queue(queue)


async def test_a_hasty_search_for_stalled_jobs_finds_none_among_those_just_taken(queue: Queue, url: str) -> None:
    jobs = size(600, 2000)
    runs: dict[str, int] = {}

    async def process(job: ActiveJob) -> str:
        runs[job.id] = runs.get(job.id, 0) + 1
        return "done"

    async def search() -> None:
        async with Queue(queue.name, url) as searching:
            while len(runs) < jobs:
                assert await searching.scripts.move_stalled_to_wait(2000, 1, 100) == 0

    ids = [(await queue.add("work", None)).id for _ in range(jobs)]
    searching = [asyncio.create_task(search()) for _ in range(3)]
    async with Worker(queue.name, process, url, concurrency=16, lease_ms=2000, interval_ms=10):
        await until_completed(queue, *ids, timeout_s=LONG_S)
    await asyncio.gather(*searching)
    assert set(runs.values()) == {1}
    history = await queue.get_history(ids[0])
    assert [event.type for event in history] == ["added", "active", "completed"]


@pytest.mark.parametrize("skew_s", [-300, 300, 86_400] if IS_FULL else [300])
async def test_workers_whose_clock_is_wrong_and_jumps_write_the_same_history(
    queue: Queue, client: Client, url: str, spawn: Spawn, skew_s: int
) -> None:
    """A worker with a wrong clock that jumps back in the middle, and one with a right one, share the work."""
    load = Load(queue, spawn, client, slots=2, lease_ms=1000, interval_ms=100)
    spawn(slots=2, lease_ms=1000, interval_ms=100, skew_s=skew_s)
    load.start(workers=1)
    for number in range(10):
        options = JobOptions(id=f"d{number}", delay_ms=500, attempts=2, backoff=Backoff("fixed", 300))
        await queue.add("work", Work(ms=1500 if number < 2 else 10, fail_once=number > 6, chatty=True), options)
    ids = [f"d{number}" for number in range(10)]
    await until_completed(queue, *ids)
    for number, job_id in enumerate(ids):
        history = await queue.get_history(job_id)
        added, *_ = history
        active = [event for event in history if event.type == "active"]
        assert [event.type for event in history if event.type not in ("progress", "milestone")] == [
            "added",
            "waiting",
            "active",
            *(["delayed", "waiting", "active"] if number > 6 else []),
            "completed",
        ]
        assert 500 <= active[0].at - added.at <= LATE_MS
        if number > 6:
            delayed = next(event for event in history if event.type == "delayed")
            assert 300 <= active[1].at - delayed.at <= LATE_MS
    await check_queue(queue)
    assert len(await ledger(client, queue.name, "d0")) == 2
    assert await assert_completed_once(queue, "d0") == 1
