"""What every contender has to do; each workload begins with a server that holds nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from bench.peers import Peer
from bench.process import READY_S, ContenderFailed, Process, contender
from bench.server import Server, settle

FILL_S = 300.0
WARM_UP = 20
BETWEEN_PICKUPS_S = 0.005
GPU_MS = 10.0
TELL_EACH = -1.0

Figures = dict[str, float]


class Sizes(NamedTuple):
    """How much is done. No drain takes longer than `limit_s`: what was done by then gives the rate."""

    adds: int = 5000
    bulk: int = 10_000
    jobs: int = 10_000
    pickups: int = 200
    gpu: int = 300
    memory: int = 100_000
    limit_s: float = 20.0


QUICK = Sizes(adds=2000, bulk=5000, jobs=3000, pickups=60, gpu=100, memory=10_000, limit_s=8.0)


class Stage:
    """Where a workload plays: the server, the sizes, and the core that clients are pinned to."""

    def __init__(self, server: Server, sizes: Sizes, client_core: int | None = None) -> None:
        self.server = server
        self.sizes = sizes
        self.client_core = client_core
        self.versions: dict[str, dict[str, str]] = {}

    def contender(self, peer: Peer, role: str, count: int, concurrency: int = 1, nap_ms: float = 0) -> Any:
        """As `process.contender`."""
        return contender(peer, self.server, role, count, concurrency, nap_ms, self.client_core)

    def note(self, process: Process) -> None:
        """Remember which versions ran."""
        self.versions.setdefault(process.peer.name, process.versions)


Play = Callable[[Stage, Peer], Awaitable[Figures | None]]


class Workload(NamedTuple):
    """A workload; `play` answers its figures, or None where a contender cannot do it."""

    name: str
    meaning: str
    play: Play
    is_once: bool = False


# ── adding ───────────────────────────────────────────────────────────────────────────────────────────


def adding(role: str) -> Play:
    """Adds by one process."""

    async def play(stage: Stage, peer: Peer) -> Figures | None:
        count = stage.sizes.bulk if role == "bulk" else stage.sizes.adds
        async with stage.contender(peer, role, count) as producer:
            stage.note(producer)
            if role == "bulk" and not producer.has_bulk:
                return None
            producer.say("go")
            await producer.hear("began", FILL_S)
            server_s = stage.server.cpu_s()
            done = await producer.hear("done", FILL_S)
            server_s = stage.server.cpu_s() - server_s
        return {
            "rate": count / done["wall_s"],
            "p50_ms": done["p50_ms"],
            "p99_ms": done["p99_ms"],
            "server_us": server_s * 1e6 / count,
            "client_us": done["cpu_s"] * 1e6 / count,
        }

    return play


async def fill(stage: Stage, peer: Peer, count: int) -> None:
    """Have `count` jobs wait."""
    async with stage.contender(peer, "fill", count) as producer:
        stage.note(producer)
        producer.say("go")
        await producer.hear("done", FILL_S)


async def memory(stage: Stage, peer: Peer) -> Figures:
    """Bytes of the server per waiting job."""
    before = stage.server.used_memory()
    await fill(stage, peer, stage.sizes.memory)
    await settle(stage.server)
    return {"bytes": (stage.server.used_memory() - before) / stage.sizes.memory}


# ── processing ───────────────────────────────────────────────────────────────────────────────────────


def draining(concurrency: int, nap_ms: float = 0) -> Play:
    """One worker process drains what waits."""

    async def play(stage: Stage, peer: Peer) -> Figures | None:
        if concurrency not in peer.concurrencies:
            return None
        count = stage.sizes.gpu if nap_ms else stage.sizes.jobs
        await fill(stage, peer, count)
        await settle(stage.server)
        server_s = stage.server.cpu_s()
        async with stage.contender(peer, "work", count, concurrency, nap_ms) as worker:
            worker.say("go")
            is_cut_off = False
            try:
                await worker.hear("last", stage.sizes.limit_s)
                await settle(stage.server)
            except TimeoutError:
                is_cut_off = True
            children_s = worker.children_cpu_s
            server_s = stage.server.cpu_s() - server_s
            worker.say("stop")
            done = await worker.hear("done", READY_S)
        return _ran(done, server_s, children_s, nap_ms, is_cut_off=is_cut_off)

    return play


def _ran(done: dict[str, Any], server_s: float, children_s: float, nap_ms: float, *, is_cut_off: bool) -> Figures:
    total = done["total"]
    if total < 2:
        raise ContenderFailed(f"ran {total} jobs within the limit")
    figures = {
        "rate": (total - 1) * 1e9 / (done["last_ns"] - done["first_ns"]),
        "server_us": server_s * 1e6 / total,
        "client_us": (done["cpu_s"] + children_s) * 1e6 / total,
        "twice": sum(times > "1" for times in done["times"]),
        "missing": 0 if is_cut_off else done["times"].count("0"),
    }
    if nap_ms:
        figures["idle_pct"] = done["idle_s"] * 1000 / (total * nap_ms) * 100
    return figures


async def pickup(stage: Stage, peer: Peer) -> Figures:
    """One job at a time to an idle worker: from the call of add to the start of the body."""
    count = stage.sizes.pickups + WARM_UP
    deadline = asyncio.get_running_loop().time() + 3 * stage.sizes.limit_s
    times_ms: list[float] = []
    async with (
        stage.contender(peer, "work", count, 1, TELL_EACH) as worker,
        stage.contender(peer, "pickup", count) as producer,
    ):
        stage.note(worker)
        worker.say("go")
        await settle(stage.server)
        producer.say("go")
        for _ in range(count):
            producer.say("next")
            added = await producer.hear("added", READY_S)
            began = await worker.hear("began", READY_S)
            times_ms.append((began["ns"] - added["ns"]) / 1e6)
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(BETWEEN_PICKUPS_S)
    times_ms = sorted(times_ms[WARM_UP:])
    if not times_ms:
        raise ContenderFailed("was too slow to be measured")
    return {"p50_ms": times_ms[len(times_ms) // 2], "p99_ms": times_ms[int(len(times_ms) * 0.99)]}


WORKLOADS = (
    Workload("add1", "awaited adds, one in flight", adding("add1")),
    Workload("add64", "awaited adds, 64 in flight", adding("add64")),
    Workload("bulk", "adds by the bulk call, 1,000 a call", adding("bulk")),
    Workload("c1", "one worker process drains waiting no-op jobs, one at a time", draining(1)),
    Workload("c32", "the same, 32 at once", draining(32)),
    Workload("c100", "the same, 100 at once", draining(100)),
    Workload("pickup", "one job at a time to an idle worker: from the call of add to the start of the body", pickup),
    Workload("gpu", "jobs of 10 ms at concurrency 1: idle time between jobs, in % of their own", draining(1, GPU_MS)),
    Workload("memory", "used_memory per waiting job", memory, is_once=True),
)
