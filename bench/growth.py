"""Whether a call of Kargah's costs the same with a thousand jobs waiting and with a million; with many groups; with
many delayed jobs.

Each situation has a server of its own, and all are asked in turns, some calls each: what else the machine does then
slows all of them down alike, which over minutes can be more than what is to be seen. The first calls of a turn do not
count, since the servers before have emptied the processor's caches.
"""

import asyncio
import contextlib
import itertools
import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.contenders.protocol import payload
from bench.server import Server, running
from orchestrator import ActiveJob, BulkJob, JobOptions, Queue, Worker

PROBES = 400
WARM = 200
TURNS = 9
CHUNK = 1000
SLOW_US = 200
MAX_SLOW = 100_000
RUN_S = 120.0
DELAY_MS = 86_400_000
MOST_GROUPED = 100_000
SIZES = (1000, 100_000, 1_000_000)

Report = Callable[[str], None]
Options = Callable[[], JobOptions]


class Situation(NamedTuple):
    """A server, and what is there: `fill` makes it so; `options` are those of the jobs that are added and done."""

    title: str
    is_first: bool
    server: Server
    queue: Queue
    size: int
    fill: Options
    options: Options


class Cost(NamedTuple):
    """Server CPU per call, in µs, and how long the longest call took, in ms: medians of the turns.

    is_first: the situation is the small one that those after it are held against.
    """

    title: str
    is_first: bool
    add_us: float
    get_us: float
    work_us: float
    longest_ms: float


async def growth(kind: str, sizes: Sequence[int], report: Report) -> list[Cost]:
    """Measure with `sizes` jobs waiting, with as many delayed as the largest size, and with few and many groups.

    kind: of the servers.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def begin(title: str, size: int, fill: Options, options: Options) -> None:
            server = stack.enter_context(running(kind))
            queue = await stack.enter_async_context(Queue("growth", server.url))
            situations.append(Situation(title, size == sizes[0], server, queue, size, fill, options))
            await _fill(situations[-1], report)

        situations: list[Situation] = []
        for size in sizes:
            await begin(f"{size:,} waiting", size, JobOptions, JobOptions)
        for size in sizes[0], sizes[-1]:
            await begin(f"{size:,} delayed", size, lambda: JobOptions(delay_ms=DELAY_MS), JobOptions)
        for size in sizes[0], min(MOST_GROUPED, sizes[-1]):
            groups = size // 10
            await begin(f"{size:,} waiting in {groups:,} groups", size, _in_turn(groups), _in_turn(groups))
        for situation in situations:
            situation.server.ask("CONFIG", "SET", "slowlog-log-slower-than", SLOW_US)
            situation.server.ask("CONFIG", "SET", "slowlog-max-len", MAX_SLOW)
        costs: list[list[Cost]] = [[] for _ in situations]
        for turn in range(TURNS):
            report(f"growth: turn {turn + 1} of {TURNS}")
            for situation, found in zip(situations, costs, strict=True):
                situation.server.ask("SLOWLOG", "RESET")
                found.append(await _measure(situation))
    return [_medians(found[1:]) for found in costs]  # the first turn comes right after the filling


def _in_turn(groups: int) -> Options:
    numbers = itertools.count()
    return lambda: JobOptions(group=f"g{next(numbers) % groups}")


def _medians(costs: Sequence[Cost]) -> Cost:
    figures = zip(*(cost[2:] for cost in costs), strict=True)
    return Cost(costs[0].title, costs[0].is_first, *map(statistics.median, figures))


async def _fill(situation: Situation, report: Report) -> None:
    told = 0
    for start in range(0, situation.size, CHUNK):
        numbers = range(start, min(start + CHUNK, situation.size))
        jobs = [BulkJob("job", payload(number), situation.fill()) for number in numbers]
        await situation.queue.add_bulk(jobs, atomic=False)
        if start * 10 // situation.size > told:
            told = start * 10 // situation.size
            report(f"growth, {situation.title}: {start:,} are there")


async def _measure(situation: Situation) -> Cost:
    server, queue = situation.server, situation.queue
    ids = await _add(situation, WARM)
    begin = server.cpu_s()
    ids += await _add(situation, PROBES)
    added = server.cpu_s()
    random.shuffle(ids)
    await _get(queue, ids[:WARM])
    reading = server.cpu_s()
    await _get(queue, ids[WARM:])
    got = server.cpu_s()
    begun, worked = await _work(situation)
    longest_us = max((entry["duration"] for entry in server.client.slowlog_get(MAX_SLOW)), default=0)
    steps = (added - begin), (got - reading), (worked - begun)
    add_us, get_us, work_us = (seconds * 1e6 / PROBES for seconds in steps)
    return Cost(situation.title, situation.is_first, add_us, get_us, work_us, longest_us / 1000)


async def _add(situation: Situation, count: int) -> list[str]:
    jobs = [await situation.queue.add("job", payload(number), situation.options()) for number in range(count)]
    return [job.id for job in jobs]


async def _get(queue: Queue, ids: Sequence[str]) -> None:
    for job_id in ids:
        await queue.get_job(job_id)


async def _work(situation: Situation) -> tuple[float, float]:
    """Have a worker do as many jobs as were added; the server's CPU time after the warm ones, and after all."""
    ran, cpu_s = 0, [0.0, 0.0]
    done = asyncio.Event()

    async def body(job: ActiveJob) -> None:
        nonlocal ran
        ran += 1
        if ran == WARM:
            cpu_s[0] = situation.server.cpu_s()
        if ran == WARM + PROBES:
            cpu_s[1] = situation.server.cpu_s()
            done.set()

    async with Worker(situation.queue.name, body, situation.server.url), asyncio.timeout(RUN_S):
        await done.wait()
    return cpu_s[0], cpu_s[1]


def render(costs: Sequence[Cost]) -> str:
    """A table."""
    lines = [
        "What a call costs the server, µs of CPU, by what is there (how many times what it costs with little of that "
        "kind); the longest call, ms",
        "",
        "| | add | get | claim and finish | longest |",
        "| --- | --- | --- | --- | --- |",
    ]
    first = costs[0]
    for cost in costs:
        first = cost if cost.is_first else first
        pairs = (cost.add_us, first.add_us), (cost.get_us, first.get_us), (cost.work_us, first.work_us)
        figures = " | ".join(f"{us:.0f} ({us / of_first:.2f} ×)" if of_first else f"{us:.0f}" for us, of_first in pairs)
        lines.append(f"| {cost.title} | {figures} | {cost.longest_ms:.1f} |")
    return "\n".join(lines)
