"""Each job runs as often as it should and no more: far delays, killed workers, cancels at the last moment."""

import asyncio
import random
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import ActiveJob, JobCanceled, JobOptions, Queue, Sandbox, Worker, WorkerEvent, WrongState
from orchestrator.job import JobState
from orchestrator.processors import Processor
from tests.chaos.checks import LONG_S, Spawn, assert_completed_once, count, ledger, size, until_completed
from tests.chaos.worker_process import Work
from tests.conftest import wait_until
from tests.invariants import check_history, check_queue
from tests.orchestrator.running import ended, types
from tests.orchestrator.sandboxed import short, short_and_deaf


async def test_jobs_due_in_ten_leases_run_once_each(queue: Queue, url: str) -> None:
    """The case G06: kombu#337."""
    runs: list[str] = []

    async def process(job: ActiveJob) -> str:
        runs.append(job.id)
        return job.id

    lease_ms = size(500, 2000)
    ids = [(await queue.add("paint", None, JobOptions(delay_ms=10 * lease_ms))).id for _ in range(50)]
    workers = [Worker(queue.name, process, url, concurrency=2, lease_ms=lease_ms, interval_ms=50) for _ in range(4)]
    async with workers[0], workers[1], workers[2], workers[3]:
        await until_completed(queue, *ids, timeout_s=LONG_S)
    assert sorted(runs) == sorted(ids)
    for job_id in ids:
        assert await types(queue, job_id) == ["added", "waiting", "active", "completed"]


@pytest.mark.slow
async def test_5_of_200_jobs_that_kill_their_workers_fail_after_their_stalls_and_195_complete(
    queue: Queue, spawn: Spawn
) -> None:
    """The cases G10 and A6: celery#9082."""
    bad = [f"bad{number}" for number in range(5)]
    good = [f"good{number}" for number in range(195)]
    for place in range(39):
        for job_id in good[place * 5 : place * 5 + 5]:
            await queue.add("work", Work(ms=20), JobOptions(id=job_id, max_stalled=20))
        if place % 8 == 0:
            await queue.add("work", Work(kill=True), JobOptions(id=bad[place // 8], max_stalled=1))
    options = {"slots": 1, "lease_ms": 1000, "interval_ms": 100}  # a second slot would kill its neighbour, too
    workers: list[subprocess.Popen[bytes]] = [spawn(**options) for _ in range(3)]

    async def all_ended() -> bool:
        for place, worker in enumerate(workers):
            if worker.poll() is not None:
                workers[place] = spawn(**options)
        counts = await queue.get_counts()
        return counts["failed"] == len(bad) and counts["completed"] == len(good)

    await wait_until(all_ended, LONG_S)
    for job_id in bad:
        job = await queue.get_job(job_id)
        assert job is not None
        assert job.error is not None
        assert (job.reason, job.stalled, job.error.kind) == ("stalled", 2, "stalled")
        assert len(await ledger(queue.client, queue.name, job_id)) == 2, "max_stalled + 1 starts"
        check_history(await queue.get_history(job_id))
    for job_id in good:
        await assert_completed_once(queue, job_id)
    assert await count(queue, "active") == 0


async def listens(job: ActiveJob) -> str:
    try:
        async with asyncio.timeout(0.01):
            await job.cancel_requested.wait()
    except TimeoutError:
        return job.id
    raise JobCanceled("stopped")


async def is_deaf(job: ActiveJob) -> str:
    await asyncio.sleep(0.01)
    return job.id


MODULE = "tests.orchestrator.sandboxed"
KINDS: dict[str, Callable[[], Processor]] = {
    "loop": lambda: listens,
    "deaf loop": lambda: is_deaf,
    "thread": lambda: short,
    "deaf thread": lambda: short_and_deaf,
    "sandbox": lambda: Sandbox(f"{MODULE}:short"),
    "deaf sandbox": lambda: Sandbox(f"{MODULE}:short_and_deaf"),
}


@pytest.mark.parametrize(("kind", "pairs"), [(kind, 200 if kind == "loop" else 50) for kind in KINDS])
async def test_cancels_at_the_end_of_a_job_hit_no_other(queue: Queue, url: str, kind: str, pairs: int) -> None:
    """The case G21: ComfyUI#2566. Each target has a bystander behind it, which the cancel must not reach."""
    draw = random.Random(21)
    targets = [f"target{number}" for number in range(pairs)]
    bystanders = [f"bystander{number}" for number in range(pairs)]
    for target, bystander in zip(targets, bystanders, strict=True):
        await queue.add("paint", None, JobOptions(id=target))
        await queue.add("paint", None, JobOptions(id=bystander))
    answers: dict[str, str] = {}

    async def cancel_near_the_end(target: str) -> None:
        event: Any = started[target]
        await event.wait()
        await asyncio.sleep(max(0.0, 0.010 + draw.uniform(-0.005, 0.005)))
        try:
            await queue.cancel(target)
            answers[target] = "accepted"
        except WrongState:
            answers[target] = "too late"

    started = {target: asyncio.Event() for target in targets}
    worker = Worker(queue.name, KINDS[kind](), url, cancel_grace_ms=2 if kind.startswith("deaf") else 1000)

    def notice(event: WorkerEvent) -> None:
        if event.job is not None and event.job.id in started:
            started[event.job.id].set()

    worker.on("active", notice)
    cancels = [asyncio.create_task(cancel_near_the_end(target)) for target in targets]
    async with worker:
        done = await ended(queue, *targets, *bystanders)
        await asyncio.gather(*cancels)
    states = {job.id: job.state for job in done}
    assert {states[bystander] for bystander in bystanders} == {JobState.COMPLETED}
    for target in targets:
        if answers[target] == "too late":
            assert states[target] is JobState.COMPLETED
        if states[target] is JobState.CANCELED:
            assert answers[target] != "too late"
        assert (await types(queue, target)).count("active") == 1
    assert set(answers) == set(targets)
    if kind == "loop":
        assert set(answers.values()) == {"accepted", "too late"}, "the race was run"
        assert {states[target] for target in targets} == {JobState.COMPLETED, JobState.CANCELED}
    await check_queue(queue)
