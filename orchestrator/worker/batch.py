"""Several jobs in the hands of one processor, each of them succeeding or failing by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from orchestrator.active_job import ActiveJob
from orchestrator.errors import UnrecoverableError
from orchestrator.scripts import end_tasks

BatchProcessor: TypeAlias = Callable[[list[ActiveJob]], Awaitable[Sequence[Any]]]
"""Gets the jobs of a batch; returns for each, in order, its result, or the exception it failed with."""


class BatchRun:
    """Runs a batch processor once for several jobs; each job's attempt waits for its own part.

    A job that is canceled, lost or out of time leaves the batch, and its part is thrown away. When none is left the
    processor is cancelled.
    """

    def __init__(self, processor: BatchProcessor, jobs: list[ActiveJob]) -> None:
        loop = asyncio.get_running_loop()
        self._processor = processor
        self._parts: dict[str, asyncio.Future[Any]] = {job.lease: loop.create_future() for job in jobs}
        self._task = asyncio.create_task(self._run(jobs), name=f"batch of {len(jobs)}")

    @property
    def is_running(self) -> bool:
        """Whether the processor is at work."""
        return not self._task.done()

    async def part(self, job: ActiveJob) -> Any:
        """What the processor makes of this job."""
        try:
            return await self._parts[job.lease]
        finally:
            if all(part.done() for part in self._parts.values()):
                self._task.cancel()

    async def close(self) -> None:
        """Return when the processor has stopped."""
        await end_tasks(self._task)
        self.forget()

    def forget(self) -> None:
        """Nobody waits for its parts any more."""
        for part in self._parts.values():
            if not part.cancel() and not part.cancelled():
                part.exception()  # of one that nobody waited for any more

    async def _run(self, jobs: list[ActiveJob]) -> None:
        try:
            results = await self._processor(jobs)
            if not isinstance(results, Sequence) or isinstance(results, str | bytes) or len(results) != len(jobs):
                raise UnrecoverableError(f"a batch processor must return a list of {len(jobs)} results")
        except asyncio.CancelledError:
            for part in self._parts.values():
                part.cancel()
            raise
        except Exception as problem:
            results = [problem] * len(jobs)
        for part, result in zip(self._parts.values(), results, strict=True):
            if part.done():
                continue
            if isinstance(result, Exception):
                part.set_exception(result)
            else:
                part.set_result(result)
