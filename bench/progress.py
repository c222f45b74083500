"""How many progress events a second get from one worker of Kargah's to 1, 10 and 100 watchers."""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from bench.server import Server
from orchestrator import ActiveJob, Hub, Queue, Worker

WATCHERS = (1, 10, 100)
RUN_S = 120.0


class Flow(NamedTuple):
    """What came through with so many watchers: events and deliveries a second, CPU µs per event and delivery."""

    watchers: int
    events: float
    deliveries: float
    server_us: float
    client_us: float


async def progress(server: Server, count: int, watchers: Sequence[int] = WATCHERS) -> list[Flow]:
    """Each time one job tells `count` values, each awaited; worker and watchers share this process and one hub."""
    return [await _flow(server, count, number) for number in watchers]


async def _flow(server: Server, count: int, watchers: int) -> Flow:
    server.flush()
    ready = asyncio.Event()
    times: list[float] = []

    async def body(job: ActiveJob) -> None:
        await ready.wait()
        times.extend((time.monotonic(), server.cpu_s(), time.process_time()))
        for value in range(count):
            await job.update_progress(value)

    async with (
        asyncio.timeout(RUN_S),
        Queue("progress", server.url) as queue,
        Worker("progress", body, server.url, progress_interval_ms=0),
        Hub(queue) as hub,
        asyncio.TaskGroup() as watching,
    ):
        job = await queue.add("job")
        listening = [asyncio.Event() for _ in range(watchers)]
        tasks = [watching.create_task(_watch(hub, job.id, count, event)) for event in listening]
        for event in listening:
            await event.wait()
        ready.set()
        await asyncio.gather(*tasks)
        began, server_s, client_s = times
        wall_s = time.monotonic() - began
        server_s, client_s = server.cpu_s() - server_s, time.process_time() - client_s
    rate = count / wall_s
    return Flow(watchers, rate, rate * watchers, server_s * 1e6 / count, client_s * 1e6 / count)


async def _watch(hub: Hub, job_id: str, count: int, listening: asyncio.Event) -> None:
    """Take every progress event of a job."""
    async with hub.watch(job_id, maxsize=count + 100) as watch:
        listening.set()
        seen = 0
        async for event in watch:
            seen += event.type == "progress"
            if seen == count:
                return


def render(flows: Sequence[Flow]) -> str:
    """A table."""
    lines = [
        "Progress events from one job to its watchers",
        "",
        "| watchers | events/s | deliveries/s | server µs per event | client µs per event (worker and watchers) |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {f.watchers} | {f.events:,.0f} | {f.deliveries:,.0f} | {f.server_us:.0f} | {f.client_us:.0f} |"
            for f in flows
        ),
    ]
    return "\n".join(lines)
