"""Adding and processing at the same time: one producer with 64 adds in flight, and 1, 2 and 4 worker processes."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.peers import Peer
from bench.process import READY_S, ContenderFailed, Process
from bench.workloads import FILL_S, Stage

WORKERS = (1, 2, 4)
CONCURRENCY = 32
ASK_S = 0.05


class Fleet(NamedTuple):
    """What a fleet did: jobs added and run a second, how busy that kept the server, and what went astray."""

    peer: Peer
    workers: int
    rate: float
    server_busy: float
    server_us: float
    worker_us: float
    twice: int
    missing: int


async def fleet(
    stage: Stage, peers: Sequence[Peer], count: int, report: Callable[[str], None], workers: Sequence[int] = WORKERS
) -> list[Fleet]:
    """Each contender with each number of workers, in turns."""
    found: list[Fleet] = []
    for number in workers:
        for peer in peers:
            stage.server.flush()
            try:
                found.append(await _run(stage, peer, count, number))
            except (ContenderFailed, TimeoutError) as problem:
                report(f"fleet, {peer.name}, {number} workers: FAILED: {problem!r}")
            else:
                report(f"fleet, {peer.name}, {number} workers: {found[-1].rate:,.0f} jobs/s")
    return found


async def _run(stage: Stage, peer: Peer, count: int, number: int) -> Fleet:
    async with contextlib.AsyncExitStack() as stack:
        workers: list[Process] = [
            await stack.enter_async_context(stage.contender(peer, "work", count, CONCURRENCY)) for _ in range(number)
        ]
        producer: Process = await stack.enter_async_context(stage.contender(peer, "add64", count))
        for worker in workers:
            worker.say("go")
        server_s = stage.server.cpu_s()
        producer.say("go")
        done = await producer.hear("done", FILL_S)
        async with asyncio.timeout(FILL_S):
            while await _ran(workers) < count:
                await asyncio.sleep(ASK_S)
        server_s = stage.server.cpu_s() - server_s
        for worker in workers:
            worker.say("stop")
        reports = [await worker.hear("done", READY_S) for worker in workers]
    wall_s = (max(each["last_ns"] for each in reports) - done["began_ns"]) / 1e9
    times = [sum(map(int, each)) for each in zip(*(each["times"] for each in reports), strict=True)]
    return Fleet(
        peer,
        number,
        count / wall_s,
        server_s / wall_s,
        server_s * 1e6 / count,
        sum(each["cpu_s"] for each in reports) * 1e6 / count,
        sum(each > 1 for each in times),
        times.count(0),
    )


async def _ran(workers: Sequence[Process]) -> int:
    for worker in workers:
        worker.say("count")
    return sum([(await worker.hear("count", READY_S))["ran"] for worker in workers])


def render(found: Sequence[Fleet]) -> str:
    """A table."""
    lines = [
        f"Added with 64 in flight and run by worker processes of {CONCURRENCY} jobs at once, at the same time",
        "",
        "| | workers | jobs/s | server busy | server µs | workers µs | ran twice | not at all |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {f.peer.title} | {f.workers} | {f.rate:,.0f} | {f.server_busy:.0%} | {f.server_us:.0f} | "
            f"{f.worker_us:.0f} | {f.twice} | {f.missing} |"
            for f in found
        ),
    ]
    return "\n".join(lines)
