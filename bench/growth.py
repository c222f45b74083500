"""Whether a call of Kargah's costs the same with a thousand jobs waiting and with a million; with many groups; with
many delayed jobs.

Each situation has a server of its own, and all are asked in turns, some calls each: what else the machine does then
slows all of them down alike, which over minutes can be more than what is to be seen.
"""

import asyncio
import contextlib
import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.contenders.protocol import payload
from bench.server import Server, running
from orchestrator import ActiveJob, BulkJob, JobOptions, Queue, Worker

PROBES = 200
TURNS = 15
CHUNK = 1000
SLOW_US = 200
MAX_SLOW = 100_000
RUN_S = 120.0
DELAY_MS = 86_400_000
GROUPS = 10_000
SIZES = (1000, 100_000, 1_000_000)

Report = Callable[[str], None]
Options = Callable[[], JobOptions]


class Situation(NamedTuple):
    """A server, and what is there: `fill` makes it so; `options` are those of the jobs that are added and done."""

    title: str
    server: Server
    queue: Queue
    size: int
    fill: Options
    options: Options


class Cost(NamedTuple):
    """Server CPU per call, in µs, and how long the longest call took, in ms: medians of the turns."""

    title: str
    add_us: float
    get_us: float
    work_us: float
    longest_ms: float


async def growth(kind: str, sizes: Sequence[int], report: Report, groups: int = GROUPS) -> list[Cost]:
    """Measure with `sizes` jobs waiting, with `groups` groups, and with as many delayed as the largest size.

    kind: of the servers.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def begin(title: str, size: int, fill: Options, options: Options) -> Situation:
            server = stack.enter_context(running(kind))
            queue = await stack.enter_async_context(Queue("growth", server.url))
            situation = Situation(title, server, queue, size, fill, options)
            await _fill(situation, report)
            return situation

        in_turn = iter(range(10**9))

        def of_a_group() -> JobOptions:
            return JobOptions(group=f"g{next(in_turn) % groups}")

        largest, many = sizes[-1], min(10 * groups, sizes[-1])
        situations = [await begin(f"{size:,} waiting", size, JobOptions, JobOptions) for size in sizes]
        situations += [
            await begin(f"{many:,} waiting in {groups:,} groups", many, of_a_group, of_a_group),
            await begin(f"{largest:,} delayed", largest, lambda: JobOptions(delay_ms=DELAY_MS), JobOptions),
        ]
        costs: list[list[Cost]] = [[] for _ in situations]
        for turn in range(TURNS):
            report(f"growth: turn {turn + 1} of {TURNS}")
            for situation, found in zip(situations, costs, strict=True):
                found.append(await _measure(situation))
    return [_medians(found[1:]) for found in costs]  # the first turn comes right after the filling


def _medians(costs: Sequence[Cost]) -> Cost:
    return Cost(costs[0].title, *(statistics.median(figures) for figures in zip(*(c[1:] for c in costs), strict=True)))


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
    title, server, queue, *_ = situation
    server.ask("CONFIG", "SET", "slowlog-log-slower-than", SLOW_US)
    server.ask("CONFIG", "SET", "slowlog-max-len", MAX_SLOW)
    server.ask("SLOWLOG", "RESET")
    begin = server.cpu_s()
    ids = [(await queue.add("job", payload(number), situation.options())).id for number in range(PROBES)]
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
    """A table; beside each figure how many times that of the first row it is."""
    first = costs[0]

    def cell(figure: float, of_first: float) -> str:
        return f"{figure:.0f} ({figure / of_first:.2f} ×)" if of_first else f"{figure:.0f}"

    lines = [
        "What a call costs the server, µs of CPU, by what is there (and how many times that of the first row); the "
        "longest call, ms",
        "",
        "| | add | get | claim and finish | longest |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {c.title} | {cell(c.add_us, first.add_us)} | {cell(c.get_us, first.get_us)} "
            f"| {cell(c.work_us, first.work_us)} | {c.longest_ms:.1f} |"
            for c in costs
        ),
    ]
    return "\n".join(lines)
