"""How jobs are canceled and leases lost under a worker, and which limits it keeps."""

import asyncio
import contextlib

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.errors import (
    JobCanceled,
    LeaseLost,
)
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.invariants import check_history, check_queue
from tests.orchestrator.running import ended, run_one, steal, types, until_active

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
LEASE_MS = 1500
"""Short, so that it is renewed while a test waits; not so short that a busy machine loses it."""


# ── cancel ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_processor_that_listens_stops_with_proof(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        await job.cancel_requested.wait()
        assert job.cancel is not None
        raise JobCanceled("stopped", step=3, by=job.cancel.by)

    job = await queue.add("paint")
    async with Worker(queue.name, process, url):
        await until_active(queue)
        await queue.cancel(job.id, by="me", reason="enough")
        (job,) = await ended(queue, job.id)
    assert job.state is JobState.CANCELED
    history = await queue.get_history(job.id)
    assert history[-1].fields == {"cancel": {"by": "me", "reason": "enough"}, "details": {"step": 3, "by": "me"}}


async def test_a_processor_that_does_not_listen_is_cancelled_after_the_grace(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        await asyncio.Event().wait()

    job = await queue.add("paint", None, JobOptions(attempts=5))
    other = await queue.add("paint", None, JobOptions(id="other"))
    async with Worker(queue.name, process, url, cancel_grace_ms=30):
        await until_active(queue)
        await queue.cancel(job.id)
        (job,) = await ended(queue, job.id)
        await until_active(queue)
        found = await queue.get_job(other.id)
        assert found is not None
        assert found.state is JobState.ACTIVE, "never another job"
        await queue.cancel(other.id)
    assert job.state is JobState.CANCELED
    assert await types(queue, job.id) == ["added", "active", "canceling", "canceled"]


async def test_a_processor_that_refuses_to_stop_loses_its_job(queue: Queue, url: str) -> None:
    end = asyncio.Event()
    lost: list[bool] = []

    async def process(job: ActiveJob) -> str:
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()
        lost.append(job.lost.is_set())
        return "too late"

    job = await queue.add("paint")
    async with Worker(queue.name, process, url, cancel_grace_ms=50, lease_ms=400, interval_ms=100):
        try:
            await until_active(queue)
            await queue.cancel(job.id)
            (job,) = await ended(queue, job.id)
        finally:
            end.set()
        after = await queue.add("paint", None, JobOptions(id="after"))
        await ended(queue, after.id)
    assert (job.state, lost[0]) == ("canceled", True)
    assert await types(queue, job.id) == ["added", "active", "canceling", "stalled", "canceled"]


async def test_a_cancel_that_races_with_the_end_hits_no_other_job(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> str:
        await asyncio.sleep(0.002)
        return job.id

    ids = [f"j{number}" for number in range(60)]
    for job_id in ids:
        await queue.add("paint", None, JobOptions(id=job_id))
    asked: set[str] = set()
    async with Worker(queue.name, process, url, cancel_grace_ms=1000):
        for job_id in ids[::2]:
            with contextlib.suppress(Exception):
                await queue.cancel(job_id)
                asked.add(job_id)
        jobs = await ended(queue, *ids)
    for job in jobs:
        assert job.state is JobState.COMPLETED or job.id in asked
        check_history(await queue.get_history(job.id))
    await check_queue(queue)


async def test_words_on_the_control_channel_that_nobody_understands_do_no_harm(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        await job.cancel_requested.wait()
        raise JobCanceled("stopped")

    job = await queue.add("paint")
    async with Worker(queue.name, process, url, lease_ms=60_000):
        await until_active(queue)
        for words in (b"", b" ", b"\xff\xfe", b"cancel", b"cancel  ", b"x" * 10_000):
            await queue.client.publish(queue.keys.control, words)
        await queue.cancel(job.id)
        (job,) = await ended(queue, job.id)
    assert job.state is JobState.CANCELED


# ── leases ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_job_longer_than_its_lease_is_held_and_runs_once(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        async def was_renewed_often() -> bool:
            score = await queue.client.zscore(f"{queue.keys.prefix}active", job.id)
            seen.add(score)
            return len(seen) > 4

        await wait_until(was_renewed_often)

    seen: set[float | None] = set()
    job = await run_one(queue, url, process, lease_ms=LEASE_MS, interval_ms=100)
    assert (job.state, job.stalled, job.attempts_started) == ("completed", 0, 1)


async def test_a_job_lost_here_may_start_again_in_another_lane_of_the_same_worker(queue: Queue, url: str) -> None:
    """Its first attempt ends late: that must neither be recorded, nor disturb the second one's lease."""
    first_may_end, second_may_end = asyncio.Event(), asyncio.Event()
    lost: list[bool] = []

    async def process(job: ActiveJob) -> int:
        if job.attempt == 1:
            while not first_may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await first_may_end.wait()
            lost.append(job.lost.is_set())
            return 1
        await second_may_end.wait()
        return job.attempt

    job = await queue.add("paint")
    worker = Worker(queue.name, process, url, concurrency=2, lease_ms=LEASE_MS, interval_ms=100)
    async with worker:
        await until_active(queue)
        try:
            await steal(queue, job.id)
            await until_active(queue)
        finally:
            first_may_end.set()
        await wait_until(lambda: bool(lost) and len(worker._attempts) == 1)
        renewed: set[float | None] = set()

        async def is_renewed() -> bool:
            renewed.add(await queue.client.zscore(f"{queue.keys.prefix}active", job.id))
            return len(renewed) > 3

        await wait_until(is_renewed)
        second_may_end.set()
        (job,) = await ended(queue, job.id)
    assert (job.state, job.result_as(int), job.attempts_started, job.stalled) == ("completed", 2, 2, 1)
    assert await types(queue, job.id) == ["added", "active", "stalled", "waiting", "active", "completed"]


async def test_a_processor_is_told_that_it_lost_its_job(queue: Queue, url: str) -> None:
    told: list[str] = []

    async def process(job: ActiveJob) -> None:
        if job.attempt == 1:
            try:
                await job.lost.wait()
            finally:
                told.append(job.lease)
                with contextlib.suppress(LeaseLost):
                    await job.update_progress("still here")
                    told.append("recorded")

    job = await queue.add("paint")
    async with Worker(queue.name, process, url, concurrency=2, lease_ms=LEASE_MS, interval_ms=100):
        await until_active(queue)
        await steal(queue, job.id)
        (job,) = await ended(queue, job.id)
        await wait_until(lambda: bool(told))
    assert (job.state, len(told)) == ("completed", 1)


# ── limits, order ────────────────────────────────────────────────────────────────────────────────────


async def test_a_delayed_job_starts_by_itself_and_not_before_its_time(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    async with Worker(queue.name, process, url, interval_ms=60_000):
        await wait_until(lambda: asyncio.sleep(0, True))
        added = [await queue.add("paint", None, JobOptions(delay_ms=ms)) for ms in (500, 200, 350)]
        jobs = await ended(queue, *[job.id for job in added])
    for job, before in zip(jobs, added, strict=True):
        assert job.started_at is not None
        assert before.due_at is not None
        assert job.started_at >= before.due_at
    assert sorted(jobs, key=lambda job: job.started_at or 0) == [jobs[1], jobs[2], jobs[0]]


async def test_the_rate_is_never_exceeded_in_any_window(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    await queue.set_global_rate_limit(3, 150)
    ids = [(await queue.add("paint")).id for _ in range(12)]
    async with Worker(queue.name, process, url, concurrency=4), Worker(queue.name, process, url, concurrency=4):
        jobs = await ended(queue, *ids)
    starts = sorted(job.started_at or 0 for job in jobs)
    assert all(later - early >= 150 for early, later in zip(starts, starts[3:], strict=False))
    assert [job.id for job in sorted(jobs, key=lambda job: job.started_at or 0)][:3] != []


async def test_a_freed_slot_of_the_global_concurrency_is_taken_by_the_next_at_once(queue: Queue, url: str) -> None:
    running = most = 0

    async def process(job: ActiveJob) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    await queue.set_global_concurrency(2)
    ids = [(await queue.add("paint")).id for _ in range(60)]
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(Worker(queue.name, process, url, concurrency=2))
        await ended(queue, *ids)
    assert most == 2


async def test_pausing_lets_running_jobs_end_and_resuming_starts_the_rest(queue: Queue, url: str) -> None:
    may_end = asyncio.Event()

    async def process(job: ActiveJob) -> None:
        await may_end.wait()

    ids = [(await queue.add("paint")).id for _ in range(6)]
    async with Worker(queue.name, process, url, concurrency=2):
        await until_active(queue, 2)
        await queue.pause()
        may_end.set()
        await ended(queue, *ids[:2])
        counts = await queue.get_counts()
        assert (counts["waiting"], counts["active"], counts["completed"]) == (4, 0, 2)
        await queue.resume()
        await ended(queue, *ids)
