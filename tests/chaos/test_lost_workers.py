"""Workers that are killed, stopped and woken, at random and at every point: each job completes once."""

import asyncio
import random
import signal
import subprocess
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from orchestrator.worker import Worker
from tests.chaos.conftest import Spawn
from tests.chaos.worker_process import Work, ledger_key
from tests.conftest import wait_until
from tests.invariants import check_history, check_queue

LONG_S = 60.0


async def ledger(client: Any, queue: str, job_id: str) -> list[str]:
    return [entry.decode() for entry in await client.lrange(ledger_key(queue, job_id), 0, -1)]


async def count(queue: Queue, state: str) -> int:
    return (await queue.get_counts())[state]


async def assert_completed_once(queue: Queue, job_id: str) -> int:
    """Returns how often the job was started."""
    history = await queue.get_history(job_id)
    check_history(history)
    types = [event.type for event in history]
    assert types.count("completed") == 1
    assert types[-1] == "completed"
    done = await ledger(queue.client, queue.name, job_id)
    job = await queue.get_job(job_id)
    assert job is not None
    assert job.result is not None
    winner = job.result_as(str)
    assert winner == job.lease
    assert f"end {winner}" in done, "what is recorded is an attempt that did its work"
    return sum(entry.startswith("start") for entry in done)


@pytest.mark.parametrize("seed", [20])
async def test_500_jobs_survive_20_kills_of_their_workers(queue: Queue, spawn: Spawn, seed: int) -> None:
    draw = random.Random(seed)
    ids = [f"j{number}" for number in range(500)]
    for job_id in ids:
        await queue.add("work", Work(ms=50), JobOptions(id=job_id, max_stalled=20))
    options = {"slots": 4, "lease_ms": 2000, "interval_ms": 500}
    workers = [spawn(**options) for _ in range(4)]
    kills = 0
    for kill in range(20):

        async def is_time(done: int = kill * 23) -> bool:
            return await count(queue, "completed") > done

        await wait_until(is_time, LONG_S)
        victim = draw.randrange(4)
        workers[victim].kill()
        workers[victim].wait(10)
        workers[victim] = spawn(**options)
        kills += 1

    async def all_done() -> bool:
        return await count(queue, "completed") == 500

    await wait_until(all_done, LONG_S)
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    assert {worker.wait(20) for worker in workers} <= {0, -signal.SIGTERM}  # one may not have begun yet
    await check_queue(queue)
    starts = [await assert_completed_once(queue, job_id) for job_id in ids]
    assert kills == 20
    assert 0 < sum(starts) - 500 <= kills * 4, "some jobs ran again, at most one for each slot of a killed worker"


async def test_a_worker_that_dies_before_or_after_any_of_its_calls_loses_and_doubles_nothing(
    client: Client, queue_name: str, url: str, spawn: Spawn
) -> None:
    at_once = asyncio.Semaphore(3)

    async def crash(call: int, when: str) -> int:
        """Crash one worker there, let another go on; returns how far the first came."""
        async with at_once:
            queue = Queue(f"{queue_name}-{call}-{when}", client)
            for number in range(2):
                await queue.add("work", Work(chatty=True), JobOptions(id=f"j{number}"))
            first = spawn(queue.name, lease_ms=600, interval_ms=200, crash_at=call, when=when)
            assert await asyncio.to_thread(first.wait, LONG_S) == -signal.SIGKILL

            async def process(job: ActiveJob) -> str:
                await client.rpush(ledger_key(queue.name, job.id), f"start {job.lease}", f"end {job.lease}")
                return job.lease

            async with Worker(queue.name, process, url, lease_ms=600, interval_ms=200):

                async def all_done() -> bool:
                    return await count(queue, "completed") == 2

                await wait_until(all_done, LONG_S)
            await check_queue(queue)
            starts = [await assert_completed_once(queue, f"j{number}") for number in range(2)]
            assert max(starts) <= 2
            assert sum(starts) <= 3, "only the job in hand runs again"
            return sum(starts)

    # For each of two jobs: a claim (with the end of the one before), progress, log, milestone; then the last end.
    points = [(call, when) for call in range(1, 10) for when in ("before", "after")]
    runs = await asyncio.gather(*(crash(call, when) for call, when in points))
    by_point = dict(zip(points, runs, strict=True))
    assert by_point[1, "before"] == 2
    assert by_point[4, "after"] == 3
    assert by_point[9, "after"] == 2


async def test_a_job_that_kills_its_worker_fails_after_its_stalls_and_holds_up_no_other(
    queue: Queue, spawn: Spawn
) -> None:
    await queue.add("work", Work(kill=True), JobOptions(id="poison", max_stalled=2))
    for number in range(20):
        await queue.add("work", Work(ms=5), JobOptions(id=f"j{number}", max_stalled=20))
    workers: list[subprocess.Popen[bytes]] = [spawn(slots=2, lease_ms=500, interval_ms=100) for _ in range(2)]

    async def all_ended() -> bool:
        for place, worker in enumerate(workers):
            if worker.poll() is not None:
                workers[place] = spawn(slots=2, lease_ms=500, interval_ms=100)
        counts = await queue.get_counts()
        return counts["failed"] == 1 and counts["completed"] == 20

    await wait_until(all_ended, LONG_S)
    job = await queue.get_job("poison")
    assert job is not None
    assert (job.reason, job.stalled) == ("stalled", 3)
    assert len(await ledger(queue.client, queue.name, "poison")) == 3
    check_history(await queue.get_history("poison"))
    for number in range(20):
        await assert_completed_once(queue, f"j{number}")


async def test_a_worker_that_wakes_up_late_is_fenced(queue: Queue, url: str, spawn: Spawn) -> None:
    zombie = spawn(lease_ms=600, interval_ms=200)
    job = await queue.add("work", Work(ms=1000))

    async def has_started() -> bool:
        return bool(await ledger(queue.client, queue.name, job.id))

    await wait_until(has_started, LONG_S)
    zombie.send_signal(signal.SIGSTOP)
    held = await queue.get_job(job.id)
    assert held is not None

    async def process(active: ActiveJob) -> str:
        await queue.client.rpush(ledger_key(queue.name, job.id), f"start {active.lease}", f"end {active.lease}")
        return active.lease

    async with Worker(queue.name, process, url, lease_ms=600, interval_ms=200):

        async def is_done() -> bool:
            return await count(queue, "completed") == 1

        await wait_until(is_done, LONG_S)
        before = await queue.get_history(job.id)
        zombie.send_signal(signal.SIGCONT)
        sent = await queue.add("work", Work(), JobOptions(id="next"))

        async def zombie_works_again() -> bool:
            return f"end {held.lease}" in await ledger(queue.client, queue.name, job.id) or zombie.poll() is not None

        async def next_is_done() -> bool:
            return await count(queue, "completed") == 2

        await wait_until(next_is_done, LONG_S)
    zombie.send_signal(signal.SIGTERM)
    assert zombie.wait(20) == 0
    assert await queue.get_history(job.id) == before
    winner = await queue.get_job(job.id)
    assert winner is not None
    assert winner.state is JobState.COMPLETED
    assert winner.result_as(str) != held.lease
    assert sent.id == "next"
