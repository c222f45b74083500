"""Whether a call of Kargah's costs the same with a thousand jobs waiting and with a million; with many groups; with
many delayed jobs.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.contenders.protocol import payload
from bench.server import Server
from orchestrator import ActiveJob, BulkJob, JobOptions, Queue, Worker

PROBES = 1000
CHUNK = 1000
SLOW_US = 200
MAX_SLOW = 100_000
RUN_S = 120.0
DELAY_MS = 86_400_000
GROUPS = 10_000
SIZES = (1000, 100_000, 1_000_000)

Report = Callable[[str], None]


class Cost(NamedTuple):
    """Server CPU per call, in µs, and how long the longest call of a script took, in ms."""

    title: str
    add_us: float
    get_us: float
    work_us: float
    longest_ms: float


async def growth(server: Server, sizes: Sequence[int], report: Report, groups: int = GROUPS) -> list[Cost]:
    """Measure with `sizes` jobs waiting, with `groups` groups, and with as many delayed as the largest size."""
    costs: list[Cost] = []
    server.flush()
    async with Queue("plain", server.url) as queue:
        there = 0
        for size in sizes:
            await _fill(queue, size - there, JobOptions, report)
            there = size
            costs.append(await _measure(server, queue, f"{size:,} waiting", JobOptions))
    server.flush()
    async with Queue("groups", server.url) as queue:
        in_turn = iter(range(10**9))

        def of_a_group() -> JobOptions:
            return JobOptions(group=f"g{next(in_turn) % groups}")

        size = min(10 * groups, sizes[-1])
        await _fill(queue, size, of_a_group, report)
        costs.append(await _measure(server, queue, f"{size:,} waiting in {groups:,} groups", of_a_group))
    server.flush()
    async with Queue("delayed", server.url) as queue:
        await _fill(queue, sizes[-1], lambda: JobOptions(delay_ms=DELAY_MS), report)
        costs.append(await _measure(server, queue, f"{sizes[-1]:,} delayed", JobOptions))
    server.flush()
    return costs


async def _fill(queue: Queue, count: int, options: Callable[[], JobOptions], report: Report) -> None:
    told = 0
    for start in range(0, count, CHUNK):
        jobs = [BulkJob("job", payload(n), options()) for n in range(start, min(start + CHUNK, count))]
        await queue.add_bulk(jobs, atomic=False)
        if start * 10 // count > told:
            told = start * 10 // count
            report(f"growth, {queue.name}: {start:,} of {count:,} more")


async def _measure(server: Server, queue: Queue, title: str, options: Callable[[], JobOptions]) -> Cost:
    server.ask("CONFIG", "SET", "slowlog-log-slower-than", SLOW_US)
    server.ask("CONFIG", "SET", "slowlog-max-len", MAX_SLOW)
    server.ask("SLOWLOG", "RESET")
    begin = server.cpu_s()
    ids = [(await queue.add("job", payload(number), options())).id for number in range(PROBES)]
    added = server.cpu_s()
    for job_id in random.sample(ids, PROBES):
        await queue.get_job(job_id)
    got = server.cpu_s()
    await _work(queue, server.url)
    worked = server.cpu_s()
    longest_us = max((entry["duration"] for entry in server.client.slowlog_get(MAX_SLOW)), default=0)
    server.ask("CONFIG", "SET", "slowlog-log-slower-than", -1)
    steps = ((added - begin), (got - added), (worked - got))
    add_us, get_us, work_us = (seconds * 1e6 / PROBES for seconds in steps)
    return Cost(title, add_us, get_us, work_us, longest_us / 1000)


async def _work(queue: Queue, url: str) -> None:
    """Have a worker do `PROBES` jobs."""
    ran = 0
    done = asyncio.Event()

    async def body(job: ActiveJob) -> None:
        nonlocal ran
        ran += 1
        if ran >= PROBES:
            done.set()

    async with Worker(queue.name, body, url), asyncio.timeout(RUN_S):
        await done.wait()


def render(costs: Sequence[Cost]) -> str:
    """A table."""
    lines = [
        "What a call costs the server, µs of CPU, by what is there; and the longest script call, ms",
        "",
        "| | add | get | claim and finish | longest |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {c.title} | {c.add_us:.0f} | {c.get_us:.0f} | {c.work_us:.0f} | {c.longest_ms:.1f} |" for c in costs),
    ]
    return "\n".join(lines)
