"""Two servers change their roles while both stay up: the old primary keeps its connections and answers READONLY."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.hub import Hub
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.worker import Worker
from tests.chaos.checks import IS_FULL, size
from tests.conftest import wait_until
from tests.faultproxy import FaultProxy
from tests.invariants import check_history, check_queue
from tests.servers import KINDS, START_S, Server, free_port, require
from tests.webhooks.rig import Rig

RESUME_S = 5.0


class Pair:
    """A primary and its replica behind one name (a proxy's) that leads new connections to the primary."""

    def __init__(self, kind: str, folder: Path) -> None:
        folder.mkdir()
        self.ports = [free_port(), free_port()]
        self.servers = [
            Server(kind, folder / str(port), "--port", str(port), "--repl-diskless-sync-delay", "0")
            for port in self.ports
        ]
        self.primary = 0

    def start(self) -> None:
        """Start both and let the second follow the first."""
        for server in self.servers:
            server.start()
        self._follow(replica=1)

    def swap(self, proxy: FaultProxy, *, held: bool) -> None:
        """Let them change roles; `held`: writers wait until the replica has everything."""
        old, new = self.servers[self.primary], self.servers[1 - self.primary]
        if held:
            old.ask("CLIENT", "PAUSE", 10_000, "WRITE")
            _wait(lambda: old.ask("ROLE")[1] <= new.ask("ROLE")[4])
        new.ask("REPLICAOF", "NO", "ONE")
        proxy.target = new.socket
        self.primary = 1 - self.primary
        self._follow(replica=1 - self.primary)
        if held:
            old.ask("CLIENT", "UNPAUSE")

    def stop(self) -> None:
        """End both."""
        for server in self.servers:
            server.stop()

    def _follow(self, replica: int) -> None:
        self.servers[replica].ask("REPLICAOF", "127.0.0.1", self.ports[1 - replica])
        _wait(lambda: self.servers[replica].ask("ROLE")[3] == b"connected")


def _wait(holds: object) -> None:
    assert callable(holds)
    deadline = time.monotonic() + START_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(params=KINDS if IS_FULL else KINDS[:1])
def pair(request: pytest.FixtureRequest, runtime_folder: Path, queue_name: str) -> Iterator[Pair]:
    """A primary with a replica."""
    require(request.param)
    pair = Pair(request.param, runtime_folder / f"pair-{queue_name[-6:]}")
    pair.start()
    yield pair
    pair.stop()


@pytest.fixture
async def proxy(pair: Pair, runtime_folder: Path) -> AsyncIterator[FaultProxy]:
    """The name of the primary."""
    async with FaultProxy(runtime_folder / "pair.sock", pair.servers[0].socket) as proxy:
        yield proxy


@pytest.mark.parametrize("held", [True, False])
async def test_everybody_follows_when_the_primary_becomes_a_replica(
    pair: Pair, proxy: FaultProxy, queue_name: str, held: bool
) -> None:
    jobs, swaps = size(300, 2000), size(2, 10)
    added: list[str] = []
    gap_s = 0.0
    completed: set[str] = set()

    async def process(job: ActiveJob) -> str:
        await asyncio.sleep(0.01)
        return job.lease

    async def add(queue: Queue) -> None:
        nonlocal gap_s
        loop = asyncio.get_running_loop()
        for number in range(jobs):
            began = loop.time()
            added.append((await queue.add("paint", None, JobOptions(id=f"j{number}", max_stalled=20))).id)
            gap_s = max(gap_s, loop.time() - began)
            await asyncio.sleep(0.003)

    async def look(hub: Hub) -> None:
        async with hub.watch(maxsize=100_000) as watch:
            async for event in watch:
                if event.type == "completed":
                    completed.add(str(event.job))

    async with Queue(queue_name, proxy.url) as queue, Queue(queue_name, proxy.url) as watched, Hub(watched) as hub:
        looking = asyncio.create_task(look(hub))
        async with Worker(queue_name, process, proxy.url, concurrency=4, lease_ms=2000, interval_ms=200):
            adding = asyncio.create_task(add(queue))
            for swap in range(swaps):
                await wait_until(lambda swap=swap: len(added) >= jobs * (swap + 1) // (swaps + 2))  # type: ignore[misc]
                await asyncio.to_thread(pair.swap, proxy, held=held)
            await adding

            async def all_ended() -> bool:
                counts = await queue.get_counts()
                return counts["waiting"] == counts["active"] == counts["delayed"] == 0

            await wait_until(all_ended)
        found = [await queue.get_job(job_id) for job_id in added]
        lost = found.count(None)
        print(f"longest add {gap_s:.2f} s, {lost} of {jobs} lost")
        for job in found:
            if job is not None:
                assert job.state is JobState.COMPLETED
                check_history(await queue.get_history(job.id))
        await check_queue(queue)
        if held:
            assert lost == 0
            await wait_until(lambda: completed == set(added))
        looking.cancel()
    assert gap_s <= RESUME_S


async def test_an_idle_worker_and_an_idle_producer_follow(pair: Pair, proxy: FaultProxy, queue_name: str) -> None:
    async def process(job: ActiveJob) -> str:
        return "done"

    async with Queue(queue_name, proxy.url) as queue:
        worker = Worker(queue_name, process, proxy.url)
        async with worker:
            first = await queue.add("paint")
            await wait_until(worker._claimer.is_looking)
            await asyncio.to_thread(pair.swap, proxy, held=True)
            async with asyncio.timeout(RESUME_S):
                second = await queue.add("paint")

            async def is_done() -> bool:
                jobs = [await queue.get_job(job.id) for job in (first, second)]
                return all(job is not None and job.state is JobState.COMPLETED for job in jobs)

            await wait_until(is_done, RESUME_S)


async def test_a_relay_follows(pair: Pair, proxy: FaultProxy, queue_name: str) -> None:
    async with Queue(queue_name, proxy.url) as queue:
        rig = Rig(queue.client, proxy.url, queue_name)
        stop = asyncio.Event()
        relaying = asyncio.create_task(rig.relay().run(stop))
        await rig.canceled_job()

        async def are_queued(deliveries: int) -> bool:
            return len(await rig.queued()) == deliveries

        await wait_until(lambda: are_queued(1))
        await asyncio.to_thread(pair.swap, proxy, held=True)
        await rig.canceled_job()
        await wait_until(lambda: are_queued(2), RESUME_S)
        stop.set()
        await relaying
