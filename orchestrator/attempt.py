"""One attempt at a job: runs the processor, stops it when it must, and says how it ended."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from orchestrator.active_job import ActiveJob
from orchestrator.endings import Endings
from orchestrator.errors import AttemptTimeout, JobCanceled, LeaseLost, ProcessorError, TransientError
from orchestrator.job import JobError
from orchestrator.log import get_logger
from orchestrator.processors import NotStopped
from orchestrator.scripts import Finish
from orchestrator.telemetry import AttemptSpan

log = get_logger("job")


class Attempt:
    """Runs `processor` for one job, and says once how that ended; it never raises for what the processor did.

    on_end: gets this attempt and its end, or what no attempt can end with (such as `SystemExit`).
    task: the processor's. leftover: set where it could not be stopped; done when it has ended at last.
    """

    def __init__(
        self,
        job: ActiveJob,
        processor: Callable[[ActiveJob], Coroutine[Any, Any, Any]],
        cancel_grace_ms: int,
        endings: Endings,
        on_end: "OnEnd",
        loop: asyncio.AbstractEventLoop,
        *,
        is_traced: bool = False,
    ) -> None:
        self.job = job
        self.leftover: asyncio.Future[Any] | None = None
        self._endings = endings
        self._on_end = on_end
        self._grace_s = cancel_grace_ms / 1000
        self._is_handed_back = self._has_timed_out = self._has_grace = self._is_cancelled = False
        self._loop = loop
        self._began = loop.time()
        self._span = _span_of(job) if is_traced else None
        work = processor(job) if self._span is None else self._traced(processor, self._span)
        self.task: asyncio.Task[Any] = loop.create_task(work, name=f"job {job.id}")
        self.task.add_done_callback(self._over)
        self._closing: asyncio.Task[Finish] | None = None
        timeout_ms = job.job.header.timeout_ms
        self._timer = loop.call_later(timeout_ms / 1000, self._time_is_over) if timeout_ms else None
        job.on_stop = self._stop_soon
        if job.cancel is not None:
            self._stop_soon()

    def hand_back(self) -> None:
        """Stop, and give the job back without using up the attempt."""
        self._is_handed_back = True
        self._stop_soon()

    def lose(self) -> None:
        """The lease is gone: stop, nothing will be recorded."""
        self.job.lose()

    def cut_off(self) -> None:
        """Stop, and do not say how it ended."""
        self.job.on_stop = None
        self._clear_timer()
        self.task.remove_done_callback(self._over)
        self.task.cancel()
        if self._closing is not None:
            self._closing.remove_done_callback(self._closed)
            self._closing.cancel()

    @property
    def duration_ms(self) -> int:
        """For how long it has run."""
        return round((self._loop.time() - self._began) * 1000)

    def log_end(self, error: JobError | None, state: str) -> None:
        """The one line about this attempt; `error`: why it failed."""
        job = self.job
        is_well = error is None and state != "LEASE_LOST"
        if is_well and not log.tells_info:
            return
        fields = {"kind": error.kind, "error": error.message} if error else {}
        say = log.info if is_well else log.warning
        attempt = f"{job.attempt}/{job.job.header.attempts}"
        say("job.finished", job=job.id, attempt=attempt, duration_ms=self.duration_ms, outcome=state.lower(), **fields)

    async def _traced(self, processor: Callable[[ActiveJob], Awaitable[Any]], span: AttemptSpan) -> Any:
        with span.current():
            return await processor(self.job)

    # ── stopping ─────────────────────────────────────────────────────────────────────────────────────

    def _stop_soon(self) -> None:
        """Not at once: the processor itself may be what just learned of it, and has the first word."""
        self._loop.call_soon(self._stop)

    def _stop(self) -> None:
        """There is a reason to stop; a canceled job may stop by itself first."""
        if self.task.done() or self._is_cancelled:
            return
        if not self.job.cancel_requested.is_set() or self.job.lost.is_set():
            self._cancel()
        elif not self._has_grace:
            self._has_grace = True
            self._clear_timer()
            self._timer = self._loop.call_later(self._grace_s, self._cancel)

    def _time_is_over(self) -> None:
        self._has_timed_out = True
        self._cancel()

    def _cancel(self) -> None:
        """Again and again, until it ends."""
        self._is_cancelled = True
        self._clear_timer()
        self.task.cancel()
        self._timer = self._loop.call_later(self._grace_s, self._cancel)

    def _clear_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ── how it ended ─────────────────────────────────────────────────────────────────────────────────

    def _over(self, task: asyncio.Task[Any]) -> None:
        self.job.on_stop = None
        self._clear_timer()
        is_plain = not (task.cancelled() or task.exception() or self.job.cancel_requested.is_set())
        if is_plain and not self.job.has_more_to_tell:
            self._end(self._endings.completed(self.job, task.result()))
        else:
            self._closing = self._loop.create_task(self._close(), name=f"end of job {self.job.id}")
            self._closing.add_done_callback(self._closed)

    def _closed(self, closing: asyncio.Task[Finish]) -> None:
        problem = asyncio.CancelledError() if closing.cancelled() else closing.exception()
        self._end(problem or closing.result())

    def _end(self, finish: Finish | BaseException) -> None:
        if self._span is not None and isinstance(finish, Finish):
            self._end_span(self._span, finish)
        self._on_end(self, finish)

    async def _close(self) -> Finish:
        """Tell what is still to be told, then say how it ended."""
        try:
            await self.job.close()
        except LeaseLost:
            self.job.lose()
        return await self._finish(self.task)

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
            case asyncio.CancelledError() if self._has_timed_out:
                problem = AttemptTimeout(
                    f"the attempt took longer than its {job.job.header.timeout_ms / 1000:g} s", **still_running
                )
            case asyncio.CancelledError() if self._is_handed_back or job.lost.is_set():
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

    def _end_span(self, span: AttemptSpan, finish: Finish) -> None:
        problem = None if self.task.cancelled() else self.task.exception()
        may_retry = finish.outcome == "failed" and finish.pause_ms >= 0
        is_retried = may_retry and self.job.attempts_made + 1 < self.job.job.header.attempts
        span.end("lost" if self.job.lost.is_set() else finish.outcome, problem, is_retried=is_retried)


def _span_of(job: ActiveJob) -> AttemptSpan:
    facts = {"run": job.run, "attempt": job.attempt, "priority": job.job.priority}
    return AttemptSpan(job.job.queue, job.name, job.id, job.job.header.trace_context, facts)


OnEnd: TypeAlias = Callable[[Attempt, Finish | BaseException], None]
