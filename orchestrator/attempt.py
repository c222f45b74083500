"""One attempt at a job: runs the processor, stops it when it must, and says how it ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from orchestrator.active_job import ActiveJob
from orchestrator.endings import Endings, error_of
from orchestrator.errors import AttemptTimeout, JobCanceled, LeaseLost, ProcessorError, TransientError
from orchestrator.log import get_logger
from orchestrator.processors import NotStopped
from orchestrator.scripts import Finish
from orchestrator.telemetry import AttemptSpan

log = get_logger("job")


class Attempt:
    """Runs `processor` for one job. `run` returns how it ended, and never raises for what the processor did.

    leftover: after `run`, set where the processor could not be stopped; done when it has ended at last.
    """

    def __init__(
        self,
        job: ActiveJob,
        processor: Callable[[ActiveJob], Awaitable[Any]],
        cancel_grace_ms: int,
        endings: Endings | None = None,
    ) -> None:
        self.job = job
        self._endings = endings or Endings()
        self._processor = processor
        self._grace_s = cancel_grace_ms / 1000
        self._timeout_s = job.job.header.timeout_ms / 1000
        self._handed_back = asyncio.Event()
        self._timed_out = False
        self._began = time.monotonic()
        self._span = _span_of(job)
        self.task: asyncio.Task[Any] = asyncio.create_task(self._process(), name=f"job {self.job.id}")
        self.leftover: asyncio.Future[Any] | None = None

    async def run(self) -> Finish:
        """Run the processor to its end, or to the point where it has to be stopped."""
        guard = asyncio.create_task(self._guard(self.task))
        try:
            await asyncio.wait([self.task])
        finally:
            guard.cancel()
        await self._tell_the_rest()
        finish = await self._finish(self.task)
        self._end_span(finish)
        return finish

    def hand_back(self) -> None:
        """Stop, and give the job back without using up the attempt."""
        self._handed_back.set()

    def lose(self) -> None:
        """The lease is gone: stop, nothing will be recorded."""
        self.job.lost.set()

    @property
    def duration_ms(self) -> int:
        """For how long it has run."""
        return round((time.monotonic() - self._began) * 1000)

    def log_end(self, finish: Finish, state: str) -> None:
        """The one line about this attempt."""
        job, error = self.job, error_of(finish)
        fields = {"kind": error.kind, "error": error.message} if error else {}
        say = log.info if error is None and state != "LEASE_LOST" else log.warning
        attempt = f"{job.attempt}/{job.job.header.attempts}"
        say("job.finished", job=job.id, attempt=attempt, duration_ms=self.duration_ms, outcome=state.lower(), **fields)

    async def _process(self) -> Any:
        with self._span.current():
            return await self._processor(self.job)

    # ── stopping ─────────────────────────────────────────────────────────────────────────────────────

    async def _guard(self, task: asyncio.Task[Any]) -> None:
        """Wait for a reason to stop; a canceled job may stop by itself first."""
        job = self.job
        reasons = {
            asyncio.create_task(job.cancel_requested.wait()): "canceled",
            asyncio.create_task(job.lost.wait()): "lost",
            asyncio.create_task(self._handed_back.wait()): "handed back",
        }
        try:
            done, _ = await asyncio.wait(reasons, timeout=self._timeout_s or None, return_when=asyncio.FIRST_COMPLETED)
            self._timed_out = not done
            if job.cancel_requested.is_set():
                await asyncio.wait([task, *(waiter for waiter, reason in reasons.items() if reason == "lost")],
                                   timeout=self._grace_s, return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
            while not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=self._grace_s)
        finally:
            for waiter in reasons:
                waiter.cancel()

    async def _tell_the_rest(self) -> None:
        try:
            await self.job.close()
        except LeaseLost:
            self.job.lost.set()

    # ── how it ended ─────────────────────────────────────────────────────────────────────────────────

    async def _finish(self, task: asyncio.Task[Any]) -> Finish:
        job, endings = self.job, self._endings
        problem = asyncio.CancelledError() if task.cancelled() else task.exception()
        still_running: dict[str, Any] = {}
        if isinstance(problem, NotStopped):
            self.leftover, still_running = problem.ended, {"stopped": False}
            problem = asyncio.CancelledError()
        match problem:
            case None:
                return endings.completed(job, task.result())
            case _ if job.cancel_requested.is_set():
                return endings.canceled(job, JobCanceled("it goes on", **still_running) if still_running else problem)
            case asyncio.CancelledError() if self._timed_out:
                problem = AttemptTimeout(f"the attempt took longer than its {self._timeout_s:g} s", **still_running)
            case asyncio.CancelledError() if self._handed_back.is_set() or job.lost.is_set():
                return endings.returned(job)
            case asyncio.CancelledError():  # from inside: handing back would start it again for ever
                problem = TransientError("the processor was cancelled from inside")
            case ProcessorError():
                pass
            case Exception():
                log.debug("job.raised", job=job.id, problem=type(problem).__name__)
            case _:
                raise problem
        return await endings.raised(job, problem)

    def _end_span(self, finish: Finish) -> None:
        problem = None if self.task.cancelled() else self.task.exception()
        may_retry = finish.outcome == "failed" and finish.pause_ms >= 0
        is_retried = may_retry and self.job.attempts_made + 1 < self.job.job.header.attempts
        self._span.end("lost" if self.job.lost.is_set() else finish.outcome, problem, is_retried=is_retried)


def _span_of(job: ActiveJob) -> AttemptSpan:
    facts = {"run": job.run, "attempt": job.attempt, "priority": job.job.priority}
    return AttemptSpan(job.job.queue, job.name, job.id, job.job.header.trace_context, facts)
