"""Redis is killed, stopped, away for long, or silent: workers go on by themselves, and stop without it."""

import asyncio
import signal
from pathlib import Path

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.scripts import connect
from orchestrator.worker import Worker
from orchestrator.worker.claimer import BLOCK_S
from tests.chaos.checks import until_completed
from tests.conftest import wait_until
from tests.faultproxy import FaultProxy
from tests.invariants import check_history, check_queue
from tests.servers import Server

RESUME_S = 5.0
STOP_S = 10.0


async def test_an_outage_longer_than_a_block_while_idle_and_within_a_job(mortal: Server, lasting: Queue) -> None:
    may_end = asyncio.Event()
    runs: list[str] = []

    async def process(job: ActiveJob) -> str:
        runs.append(job.id)
        if job.id == "long":
            await may_end.wait()
            await job.update_progress("still here")
        return "done"

    ids = [f"later{number}" for number in range(20)]
    async with Worker(lasting.name, process, mortal.url, concurrency=2, lease_ms=4000, interval_ms=500):
        await lasting.add("paint", None, JobOptions(id="long"))
        for job_id in ids:
            await lasting.add("paint", None, JobOptions(id=job_id, delay_ms=1500))
        await wait_until(lambda: "long" in runs)
        mortal.kill()
        await asyncio.sleep(BLOCK_S * 6)  # the outage itself
        may_end.set()
        mortal.start()
        fresh = await lasting.add("paint")
        await until_completed(lasting, fresh.id, timeout_s=RESUME_S)
        await until_completed(lasting, "long", *ids, timeout_s=RESUME_S)
    assert len(runs) == len(set(runs)) == 22, "each ran once"
    history = await lasting.get_history("long")
    assert [event.type for event in history] == ["added", "active", "progress", "completed"]
    await check_queue(lasting)


async def test_a_server_that_is_killed_again_and_again_loses_nothing_that_was_answered(
    mortal: Server, lasting: Queue
) -> None:
    async def process(job: ActiveJob) -> str:
        await job.update_progress(1)
        return job.lease

    ids: list[str] = []

    async def add() -> None:
        for number in range(150):
            ids.append((await lasting.add("paint", None, JobOptions(id=f"j{number}", max_stalled=20))).id)  # noqa: PERF401

    async with Worker(lasting.name, process, mortal.url, concurrency=4, lease_ms=3000, interval_ms=200):
        adding = asyncio.create_task(add())
        for kill in range(4):
            await wait_until(lambda kill=kill: len(ids) > kill * 35)  # type: ignore[misc]
            mortal.kill()
            mortal.start()
        await adding
        await until_completed(lasting, *ids, timeout_s=40)
    assert len(ids) == 150
    for job_id in ids:
        history = await lasting.get_history(job_id)
        check_history(history)
        assert [event.type for event in history].count("completed") == 1
    await check_queue(lasting)


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_worker_stops_although_redis_never_comes_back(mortal: Server, queue_name: str, is_busy: bool) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def process(job: ActiveJob) -> None:
        started.set()
        await may_end.wait()

    worker = Worker(queue_name, process, mortal.url, lease_ms=1000)
    running = asyncio.create_task(worker.run())
    async with Queue(queue_name, mortal.url) as queue:
        if is_busy:
            await queue.add("paint")
            await started.wait()
        else:
            await wait_until(worker._claimer.is_looking)
    mortal.kill()
    may_end.set()
    async with asyncio.timeout(STOP_S):
        await worker.stop()
        await running


async def test_connections_that_fall_silent_are_given_up_and_made_anew(
    server: Server, queue: Queue, runtime_folder: Path
) -> None:
    async def process(job: ActiveJob) -> str:
        return "done"

    async with FaultProxy(runtime_folder / "silent.sock", server.socket) as proxy:
        client = connect(proxy.url, timeout_s=0.5)
        async with Worker(queue.name, process, client):
            first = await queue.add("paint")
            await until_completed(queue, first.id)
            async with proxy.blackhole():
                second = await queue.add("paint")
                await asyncio.sleep(1)  # the silence itself
            await until_completed(queue, second.id)
        await client.aclose()


async def test_a_server_that_stands_still_for_less_than_a_lease_costs_nothing(mortal: Server, lasting: Queue) -> None:
    may_end = asyncio.Event()

    async def process(job: ActiveJob) -> None:
        await may_end.wait()

    job = await lasting.add("paint")
    async with Worker(lasting.name, process, mortal.url, lease_ms=6000, interval_ms=200):

        async def is_active() -> bool:
            return (await lasting.get_counts())["active"] == 1

        await wait_until(is_active)
        mortal.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2)  # the standstill itself
        mortal.process.send_signal(signal.SIGCONT)
        may_end.set()
        await until_completed(lasting, job.id)
    assert [event.type for event in await lasting.get_history(job.id)] == ["added", "active", "completed"]
