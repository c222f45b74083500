"""Workers that are killed, stopped and woken, at random and at every point: each job completes once."""

import asyncio
import random
import signal
import subprocess
import time
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from orchestrator.worker import Worker
from tests.chaos.checks import LONG_S, Load, Spawn, assert_completed_once, count, ledger, size, until_completed
from tests.chaos.worker_process import Work, ledger_key
from tests.conftest import wait_until
from tests.invariants import check_history, check_queue


@pytest.mark.parametrize("seed", [20])
async def test_jobs_survive_many_kills_of_their_workers(queue: Queue, spawn: Spawn, seed: int) -> None:
    jobs, kills = size(500, 5000), size(20, 200)
    draw = random.Random(seed)
    load = Load(queue, spawn, queue.client, slots=4, lease_ms=2000, interval_ms=500)
    await load.add(jobs, ms=50)
    load.start(workers=4)
    for kill in range(kills):

        async def is_time(done: int = kill * 23) -> bool:
            return await count(queue, "completed") > done

        await wait_until(is_time, LONG_S)
        load.kill(draw.randrange(4))
    again = await load.finish()
    assert 0 < again <= kills * 4, "some jobs ran again, at most one for each slot of a killed worker"


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


async def test_a_job_that_is_handed_to_a_stopped_worker_runs_elsewhere_after_its_lease(
    queue: Queue, url: str, spawn: Spawn
) -> None:
    """The server runs the call that an idle worker has sent ahead, also when nobody is there to read the answer."""
    lease_ms = 4000
    stopped = spawn(lease_ms=lease_ms, interval_ms=200)
    client: Any = queue.client
    ran: list[str] = []

    async def is_handed_one() -> bool:
        """Stop the worker and add a job; False when it slept no more by then."""
        clients = await client.client_list()
        if not any(each["cmd"] == "bzpopmin" and "b" in each["flags"] for each in clients):
            return False
        stopped.send_signal(signal.SIGSTOP)
        job = await queue.add("work", Work())
        if (await queue.get_counts())["active"] == 1:
            added.append(job.id)
            return True
        stopped.send_signal(signal.SIGCONT)
        await until_completed(queue, job.id)
        return False

    async def process(job: ActiveJob) -> str:
        ran.append(job.id)
        return job.lease

    added: list[str] = []
    await wait_until(is_handed_one, LONG_S)
    handed_at = time.monotonic()
    second = await queue.add("work", Work())
    async with Worker(queue.name, process, url, lease_ms=lease_ms, interval_ms=200):
        await until_completed(queue, second.id)
        assert time.monotonic() - handed_at < lease_ms / 1000, "no more than one job waits for the lease"
        await until_completed(queue, added[0])
        assert time.monotonic() - handed_at > lease_ms / 1000 - 0.5
        stopped.send_signal(signal.SIGCONT)
        third = await queue.add("work", Work())
        await until_completed(queue, third.id)
    stopped.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(stopped.wait, LONG_S) == 0
    assert await ledger(queue.client, queue.name, added[0]) == [], "the worker that was stopped has not begun it"
    assert ran[:2] == [second.id, added[0]]
    check_history(await queue.get_history(added[0]))
    await check_queue(queue)
