"""Schedules with workers and programs around them: in time, through killed connections, through rival upserts."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.job import JobState
from orchestrator.queue import Queue
from orchestrator.schedule import JobTemplate, RepeatOptions
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.lua.scene import Scene, drain
from tests.lua.scheduling import pass_slots

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

EVERY = RepeatOptions(every_ms=60_000)
ROOT = Path(__file__).parents[2]
Work = Callable[[ActiveJob], Awaitable[Any]]


def remember(seen: list[str]) -> Work:
    async def process(job: ActiveJob) -> None:
        seen.append(job.id)

    return process


def grown(seen: list[str], before: int) -> bool:
    return len(seen) > before


async def test_a_worker_runs_the_jobs_of_a_schedule_in_time(queue: Queue, url: str) -> None:
    seen: list[str] = []
    async with Worker(queue.name, remember(seen), url):
        await queue.upsert_job_scheduler("s", RepeatOptions(every_ms=150, limit=6))
        await wait_until(lambda: len(seen) == 6)
    jobs = {job.id: job for job in await queue.get_jobs([JobState.COMPLETED])}
    slots = [int(job_id[2:]) for job_id in seen]
    found = await queue.get_job_scheduler("s")
    assert found is not None
    assert (found.made, found.is_finished) == (6, True)
    periods = [(after - before) / 150 for before, after in pairwise(slots)]
    assert sum(period - 1 for period in periods) == found.skipped  # of a machine that is too busy for every slot
    late = [(jobs[job_id].started_at or 0) - int(job_id[2:]) for job_id in seen]
    assert min(late) >= 0
    assert sorted(late)[2] < 150, "a worker that only looked every second would be later"
    await check_queue(queue)


async def test_a_sleeping_worker_wakes_for_a_schedule_that_is_due_before_its_sleep_ends(queue: Queue, url: str) -> None:
    seen: list[str] = []
    async with Worker(queue.name, remember(seen), url, interval_ms=60_000) as worker:
        await wait_until(worker._claimer.is_looking)
        now, _ = await queue.scripts.get_job_scheduler("x")
        await queue.upsert_job_scheduler("s", RepeatOptions(every_ms=86_400_000, start_at=now + 300))
        await wait_until(lambda: bool(seen))
    job = await queue.get_job(seen[0])
    assert job is not None
    assert 0 <= job.created_at - (now + 300) < 1000


async def test_schedules_go_on_after_all_connections_were_killed_twenty_times(queue: Queue, url: str) -> None:
    """G03 of shared/cases.md, its second half."""
    seen: list[str] = []
    async with Worker(queue.name, remember(seen), url, lease_ms=2000, interval_ms=200):
        await queue.upsert_job_scheduler("s", RepeatOptions(every_ms=100))
        for _ in range(20):
            await queue.client.client_kill_filter(_type="normal", skipme=False)
            await wait_until(partial(grown, seen, len(seen)))
        await wait_until(lambda: len(seen) > 20)
    assert len(seen) == len(set(seen))
    await check_queue(queue)


UPSERTS = """
import asyncio, sys
from orchestrator import JobOptions, JobTemplate, Queue, RepeatOptions

async def main(url, name, writer):
    async with Queue(name, url) as queue:
        for number in range(50):
            await queue.upsert_job_scheduler(
                "s", RepeatOptions(every_ms=3_600_000 + number * int(writer)), JobTemplate("w", number)
            )

asyncio.run(main(*sys.argv[1:]))
"""


async def test_fifty_upserts_from_each_of_four_processes_leave_one_next_job(scene: Scene, url: str) -> None:
    """G15 of shared/cases.md. Two of the writers change the timing each time, two the template alone."""
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", UPSERTS, url, scene.queue.name, str(number // 2), cwd=ROOT, stderr=subprocess.PIPE
        )
        for number in range(4)
    ]
    for writer in writers:
        _, problem = await writer.communicate()
        assert writer.returncode == 0, problem.decode()
    made = await scene.queue.upsert_job_scheduler("s", EVERY, JobTemplate("last", "word"))
    (job,) = await scene.queue.get_jobs([JobState.WAITING, JobState.DELAYED])
    assert (job.id, job.name, job.data_as(str)) == (made.last_job_id, "last", "word")
    assert await scene.queue.get_job_schedulers_count() == 1
    await drain(scene)
    (slot,) = await pass_slots(scene, "s", 1)
    assert await drain(scene) == [f"s:{slot}"]
    await check_queue(scene.queue)
