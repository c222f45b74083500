"""Connections that fall silent, calls that are cancelled anywhere, more callers than connections."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.hub import Hub
from orchestrator.job import Job, JobOptions
from orchestrator.queue import Queue
from orchestrator.scripts import Client, connect, end_tasks
from orchestrator.worker import Worker
from tests.chaos.checks import IS_FULL, Load, Spawn, size, until_completed
from tests.faultproxy import FaultProxy
from tests.servers import Server

DETECTED_S = 15.0


async def test_half_open_connections_are_noticed_and_made_anew(
    server: Server, queue: Queue, runtime_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's three connections and the watcher's: nothing comes on them any more, and nobody says so."""

    async def process(job: ActiveJob) -> str:
        return "done"

    if not IS_FULL:  # else the true time limits, for which the bar is meant
        monkeypatch.setattr("orchestrator.scripts.listener.POLL_S", 0.5)
    async with FaultProxy(runtime_folder / "half.sock", server.socket) as proxy:
        client = connect(proxy.url, timeout_s=size(1.0, 5.0))
        async with (
            Hub(Queue(queue.name, client)) as hub,
            hub.watch() as watch,
            Worker(queue.name, process, client),
        ):
            first = await queue.add("paint")
            await until_completed(queue, first.id)
            seen = [(await anext(watch)).type for _ in range(4)]
            proxy.freeze()
            began = time.monotonic()
            second = await queue.add("paint")
            async with asyncio.timeout(DETECTED_S):
                seen += [(await anext(watch)).type for _ in range(3)]
                await until_completed(queue, second.id)
            took_s = time.monotonic() - began
            proxy.freeze()
            third = await queue.add("paint")
            async with asyncio.timeout(DETECTED_S):
                await until_completed(queue, third.id)
        await client.aclose()
    print(f"noticed after {took_s:.1f} s")
    assert [each for each in seen if each != "drained"][:6] == ["added", "active", "completed"] * 2


async def test_calls_cancelled_anywhere_leave_no_foreign_answer_and_no_connection(
    server: Server, queue: Queue, runtime_folder: Path
) -> None:
    jobs = [await queue.add(f"name-{number}", number) for number in range(100)]
    draw = random.Random(5)
    wrong = 0

    def is_right(number: int, found: Job | None) -> bool:
        return found is not None and found.id == jobs[number].id and found.data_as(int) == number

    async with FaultProxy(runtime_folder / "storm.sock", server.socket) as proxy:
        client = connect(proxy.url, max_connections=20)
        caller = Queue(queue.name, client)
        proxy.delay_s = 0.01

        async def call_and_cancel() -> None:
            for _ in range(size(25, 100)):
                number = draw.randrange(len(jobs))
                call = asyncio.create_task(caller.get_job(jobs[number].id))
                await asyncio.wait([call], timeout=draw.uniform(0, 0.03))
                await end_tasks(call)

        await asyncio.gather(*(call_and_cancel() for _ in range(20)))
        proxy.delay_s = 0.0

        async def read() -> None:
            nonlocal wrong
            for _ in range(size(50, 500)):
                number = draw.randrange(len(jobs))
                wrong += not is_right(number, await caller.get_job(jobs[number].id))

        await asyncio.gather(*(read() for _ in range(20)))
        connections = len(proxy._writers)
        await client.aclose()
    assert wrong == 0
    assert connections <= 20


async def test_more_callers_than_connections_wait_and_all_are_served(server: Server, queue: Queue) -> None:
    client = connect(server.url, max_connections=5)
    times: list[float] = []

    async def add(number: int) -> None:
        began = time.monotonic()
        await Queue(queue.name, client).add("paint", None, JobOptions(id=f"j{number}"))
        times.append(time.monotonic() - began)

    await asyncio.gather(*(add(number) for number in range(200)))
    assert (await queue.get_counts())["waiting"] == 200
    connections = len(await queue.client.client_list())
    await client.aclose()
    assert sorted(times)[198] <= (1 if IS_FULL else 5)
    assert connections <= 5 + 5


async def test_a_slow_and_lossy_network_delays_and_loses_nothing(
    server: Server, client: Client, queue_name: str, url: str, runtime_folder: Path, spawn: Spawn
) -> None:
    """B4 of shared/reliability.md: 200 ms for each answer, which comes byte by byte, and connections that are reset."""
    draw, loop = random.Random(4), asyncio.get_running_loop()
    async with FaultProxy(runtime_folder / "slow.sock", server.socket) as proxy, Queue(queue_name, proxy.url) as queue:
        load = Load(queue, spawn, client, to=proxy.url, ledger=url, slots=4, lease_ms=4000, interval_ms=500)
        proxy.delay_s, proxy.trickles = 0.2, True
        load.start(workers=4)
        ends_at = loop.time() + size(5.0, 180.0)
        resets = 0

        async def add() -> None:
            while loop.time() < ends_at:
                await load.add(1)

        async def reset() -> None:
            nonlocal resets
            while True:
                await asyncio.sleep(draw.uniform(0.1, 1.0))
                proxy.cut_one(draw)
                resets += 1

        resetting = asyncio.create_task(reset())
        await asyncio.gather(*(add() for _ in range(8)))
        await end_tasks(resetting)
        proxy.delay_s, proxy.trickles = 0.0, False
        again = await load.finish()
    print(f"{len(load.ids)} jobs, {resets} resets, {again} ran again, longest add {load.gap_s:.1f} s")
    assert again <= resets * 4, "at most one for each slot of a worker that was cut off"
