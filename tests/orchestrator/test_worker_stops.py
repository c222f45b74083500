"""How a worker stops, and what it survives."""

import asyncio
import json
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.errors import (
    InvalidOption,
)
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.scripts import connect
from orchestrator.worker import Worker
from orchestrator.worker.claimer import BLOCK_S
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.orchestrator.running import ended, goes_on, run_one, types, until_active

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


# ── stopping ─────────────────────────────────────────────────────────────────────────────────────────


async def test_an_idle_worker_stops_at_once(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    loop = asyncio.get_running_loop()
    took_s = []
    for number in range(15):
        worker = Worker(queue.name, process, url, concurrency=3)
        async with worker:
            await wait_until(worker._claimer.is_looking)
            await asyncio.sleep(number / 1000)  # stop it at each step of its first calls
            began = loop.time()
            await worker.stop()
            took_s.append(loop.time() - began)
    assert sorted(took_s)[7] < BLOCK_S / 2, "half of them would wait longer if nothing ended the blocking read"


async def test_a_stopping_worker_lets_running_jobs_end(queue: Queue, url: str) -> None:
    may_end = asyncio.Event()

    async def process(job: ActiveJob) -> str:
        await may_end.wait()
        return "done"

    ids = [(await queue.add("paint")).id for _ in range(3)]
    worker = Worker(queue.name, process, url, concurrency=2)
    async with worker:
        await until_active(queue, 2)
        stopping = asyncio.create_task(worker.stop(grace_s=20))
        await wait_until(worker._stopping.is_set)
        may_end.set()
        await stopping
    counts = await queue.get_counts()
    assert (counts["completed"], counts["waiting"], counts["active"]) == (2, 1, 0)
    assert await types(queue, ids[2]) == ["added"]


async def test_a_job_longer_than_the_grace_is_handed_back_to_its_place_without_losing_an_attempt(
    queue: Queue, url: str
) -> None:
    async def process(job: ActiveJob) -> None:
        await asyncio.Event().wait()

    first = await queue.add("paint")
    second = await queue.add("paint")
    worker = Worker(queue.name, process, url)
    async with worker:
        await until_active(queue)
        await worker.stop(grace_s=0.01)
    assert [job.id for job in await queue.get_jobs([JobState.WAITING])] == [first.id, second.id]
    job = await queue.get_job(first.id)
    assert job is not None
    assert (job.attempts_made, job.stalled) == (0, 0)
    assert await types(queue, first.id) == ["added", "active", "waiting"]


async def test_a_claim_that_arrives_while_stopping_is_handed_back_at_once(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    async def process(job: ActiveJob) -> None:
        ran.append(job.id)
        await asyncio.Event().wait()

    worker = Worker(queue.name, process, url)
    claim = worker.queue.scripts.move_to_active
    claimed, go_on = asyncio.Event(), asyncio.Event()

    async def slow_claim(*args: Any) -> Any:
        answer = await claim(*args)
        if answer.claims:
            claimed.set()
            await go_on.wait()
        return answer

    monkeypatch.setattr(worker.queue.scripts, "move_to_active", slow_claim)
    job = await queue.add("paint")
    async with worker:
        await claimed.wait()
        stopping = asyncio.create_task(worker.stop())
        await wait_until(worker._stopping.is_set)
        go_on.set()
        await stopping
    assert ran == []
    assert await types(queue, job.id) == ["added", "active", "waiting"]


async def test_a_worker_may_be_stopped_before_it_runs_and_twice(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    await Worker(queue.name, process, url).stop()
    worker = Worker(queue.name, process, url)
    async with worker:
        await asyncio.gather(worker.stop(), worker.stop())


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"lease_ms": 1}, {"interval_ms": 0}, {"concurrency": True}], ids=str
)
async def test_a_worker_refuses_what_can_never_be_right(queue: Queue, url: str, options: dict[str, Any]) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    with pytest.raises(InvalidOption):
        Worker(queue.name, process, url, **options)


async def test_a_worker_name_of_any_length_fits_into_an_event(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    job = await run_one(queue, url, process, name="\x01\ud800🎨" * 5000)
    assert job.worker is not None
    assert len(json.dumps(job.worker)) < 1000


# ── trouble ──────────────────────────────────────────────────────────────────────────────────────────


async def quick(job: ActiveJob) -> str:
    await job.update_progress(1)
    return job.id


async def test_connections_that_are_killed_again_and_again_lose_no_job(queue: Queue, url: str) -> None:
    killer: Any = connect(url)

    async def kill_all() -> None:
        await killer.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await killer.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.sleep(0.05)

    ids = [f"j{number}" for number in range(200)]
    async with Worker(queue.name, quick, url, concurrency=4, lease_ms=5000), goes_on(kill_all):
        for job_id in ids:
            await queue.add("paint", None, JobOptions(id=job_id))
        await ended(queue, *ids)
    for job_id in ids:
        assert await types(queue, job_id) == ["added", "active", "progress", "completed"]
    await check_queue(queue)
    await killer.aclose()


async def test_scripts_that_the_server_forgets_again_and_again_are_sent_anew(queue: Queue, url: str) -> None:
    flusher = connect(url)

    async def flush() -> None:
        await flusher.script_flush()

    ids = [f"j{number}" for number in range(100)]
    async with Worker(queue.name, quick, url, concurrency=4), goes_on(flush):
        await asyncio.gather(*(queue.add("paint", None, JobOptions(id=job_id)) for job_id in ids))
        jobs = await ended(queue, *ids)
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    await flusher.aclose()


async def test_a_pool_smaller_than_the_burst_makes_callers_wait_and_fails_none(queue_name: str, url: str) -> None:
    client = connect(url, max_connections=5)
    queue = Queue(queue_name, client)
    async with Worker(queue.name, quick, client, concurrency=20):
        jobs = await asyncio.gather(*(queue.add("paint", number) for number in range(200)))
        done = await ended(queue, *[job.id for job in jobs])
    assert len({job.id for job in done if job.state is JobState.COMPLETED}) == 200
    await client.aclose()
