"""One attempt at a job: runs the processor, stops it when it must, and says how it ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import MAX_DELAY_MS, Backoff
from orchestrator.errors import (
    InvalidOption,
    JobCanceled,
    LeaseLost,
    ProcessorError,
    RetryLater,
    UnrecoverableError,
    WaitingChildrenError,
)
from orchestrator.job import JobError, clip, encode_json
from orchestrator.log import get_logger
from orchestrator.scripts import Finish

log = get_logger("job")

MAX_MESSAGE_BYTES = 1024
MAX_DETAILS_BYTES = 1024
MAX_RESULT_BYTES = 512 * 1024
NO_MORE = -1


class Attempt:
    """Runs `processor` for one job. `run` returns how it ended, and never raises for what the processor did."""

    def __init__(self, job: ActiveJob, processor: Callable[[ActiveJob], Awaitable[Any]], cancel_grace_ms: int) -> None:
        self.job = job
        self._processor = processor
        self._grace_s = cancel_grace_ms / 1000
        self._timeout_s = job.job.header.timeout_ms / 1000
        self._handed_back = asyncio.Event()
        self._timed_out = False
        self._began = time.monotonic()
        self.task: asyncio.Task[Any] = asyncio.create_task(self._process(), name=f"job {self.job.id}")
        self._error: JobError | None = None

    async def run(self) -> Finish:
        """Run the processor to its end, or to the point where it has to be stopped."""
        guard = asyncio.create_task(self._guard(self.task))
        try:
            await asyncio.wait([self.task])
        finally:
            guard.cancel()
        await self._tell_the_rest()
        return self._finish(self.task)

    def hand_back(self) -> None:
        """Stop, and give the job back without using up the attempt."""
        self._handed_back.set()

    def lose(self) -> None:
        """The lease is gone: stop, nothing will be recorded."""
        self.job.lost.set()

    def log_end(self, state: str) -> None:
        """The one line about this attempt."""
        job = self.job
        duration_ms = round((time.monotonic() - self._began) * 1000)
        fields = {"kind": self._error.kind, "error": self._error.message} if self._error else {}
        say = log.info if state in ("completed", "waiting-children") else log.warning
        attempt = f"{job.attempt}/{job.job.header.attempts}"
        say("job.finished", job=job.id, attempt=attempt, duration_ms=duration_ms, outcome=state.lower(), **fields)

    async def _process(self) -> Any:
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

    def _finish(self, task: asyncio.Task[Any]) -> Finish:
        problem = asyncio.CancelledError() if task.cancelled() else task.exception()
        match problem:
            case None:
                return self._completed(task.result())
            case JobCanceled():
                return self._end("canceled", _details(problem.details))
            case _ if self.job.cancel_requested.is_set():
                return self._end("canceled", b"{}")
            case asyncio.CancelledError() if self._timed_out:
                message = f"the attempt took longer than its {self._timeout_s:g} s"
                return self._failed(JobError("timeout", message), self._pause_ms())
            case asyncio.CancelledError() if self._handed_back.is_set() or self.job.lost.is_set():
                return self._end("returned", b"{}")
            case asyncio.CancelledError():  # from inside: handing back would start it again for ever
                return self._failed(JobError("transient", "the processor was cancelled from inside"), self._pause_ms())
            case WaitingChildrenError():
                return self._end("waiting-children", b"{}")
            case RetryLater():
                return self._failed(_error(problem), min(max(round(problem.delay_ms), 0), MAX_DELAY_MS))
            case UnrecoverableError():
                return self._failed(_error(problem), NO_MORE)
            case Exception():
                if not isinstance(problem, ProcessorError):
                    log.debug("job.raised", job=self.job.id, problem=type(problem).__name__)
                return self._failed(_error(problem), self._pause_ms())
            case _:
                raise problem

    def _completed(self, result: Any) -> Finish:
        try:
            return self._end("completed", encode_json("result", result, MAX_RESULT_BYTES))
        except InvalidOption as problem:
            return self._failed(JobError("poison", clip(problem, MAX_MESSAGE_BYTES)), NO_MORE)

    def _failed(self, error: JobError, pause_ms: int) -> Finish:
        self._error = error
        return self._end("failed", msgspec.json.encode(error), pause_ms)

    def _end(self, outcome: str, content: bytes, pause_ms: int = NO_MORE) -> Finish:
        return Finish(self.job.id, self.job.lease, outcome, content, pause_ms)

    def _pause_ms(self) -> int:
        backoff = self.job.job.header.backoff or Backoff("fixed", 0)
        return backoff.pause_ms(self.job.attempts_made + 1)


def _error(problem: BaseException) -> JobError:
    message = clip(_text(problem) or type(problem).__name__, MAX_MESSAGE_BYTES)
    if isinstance(problem, ProcessorError):
        details: dict[str, Any] = msgspec.json.decode(_details(problem.details))
        return JobError(problem.kind, message, details)
    return JobError("transient", message, {"type": type(problem).__name__})


def _text(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception:  # its own __str__ is at fault
        return ""


def _details(details: dict[str, Any]) -> bytes:
    try:
        return encode_json("details", details, MAX_DETAILS_BYTES)
    except InvalidOption:
        return b"{}"
