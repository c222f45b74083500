"""Running jobs by a real worker, and waiting for what becomes of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import lua
from orchestrator.job import Job, JobOptions
from orchestrator.processors import Processor
from orchestrator.queue import Queue
from orchestrator.scripts import end_tasks
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.invariants import check_history


async def ended(queue: Queue, *job_ids: str) -> list[Job]:
    """The jobs, once all of them have finished."""

    async def are() -> bool:
        jobs = [await queue.get_job(job_id) for job_id in job_ids]
        return all(job is None or job.state.is_finished for job in jobs)

    await wait_until(are)
    jobs = [await queue.get_job(job_id) for job_id in job_ids]
    return [job for job in jobs if job is not None]


async def run_one(queue: Queue, url: str, process: Processor, options: JobOptions | None = None, **worker: Any) -> Job:
    """Run one job to its end."""
    job = await queue.add("paint", {"n": 1}, options)
    async with Worker(queue.name, process, url, **worker):
        (job,) = await ended(queue, job.id)
    check_history(await queue.get_history(job.id))
    return job


async def types(queue: Queue, job_id: str) -> list[str]:
    """The types of the events of a job."""
    return [event.type for event in await queue.get_history(job_id)]


async def until_active(queue: Queue, count: int = 1) -> None:
    """Wait until so many jobs run."""

    async def are() -> bool:
        return (await queue.get_counts())["active"] == count

    await wait_until(are)


async def steal(queue: Queue, job_id: str) -> None:
    """End the lease of a running job and put it back into the queue, before its worker can renew it."""

    function = lua.library().function("move_stalled_to_wait")

    async def is_back() -> bool:
        """False while nobody is to be recovered, since a busy machine made a worker look too late."""
        async with queue.client.pipeline(transaction=True) as pipeline:
            pipeline.zadd(f"{queue.keys.prefix}active", {job_id: 1}, xx=True)
            pipeline.fcall(function, 2, queue.keys.meta, queue.keys.none, 60_000, 1000, 1)
            return bool(await pipeline.execute() == [0, 1])

    await wait_until(is_back)


@contextlib.asynccontextmanager
async def goes_on(work: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    """Do something again and again beside the test."""

    async def repeat() -> None:
        while True:
            await work()
            await asyncio.sleep(0.02)

    task = asyncio.create_task(repeat())
    try:
        yield
        assert not task.done()
    finally:
        await end_tasks(task)
