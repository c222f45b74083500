"""How attempts end: from what a processor returns or raises to what is recorded."""

import asyncio
import inspect
import math
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import BUILT_IN, MAX_DELAY_MS, Backoff
from orchestrator.errors import (
    DelayedError,
    InvalidOption,
    JobCanceled,
    ProcessorError,
    RateLimitError,
    RetryLater,
    StepError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)
from orchestrator.job import JobError, clip, encode_json
from orchestrator.log import get_logger
from orchestrator.scripts import Finish

log = get_logger("job")

MAX_MESSAGE_BYTES = 1024
MAX_DETAILS_BYTES = 1024
MAX_KIND_BYTES = 64
MAX_RESULT_BYTES = 512 * 1024
MAX_STACK_BYTES = 1024
MAX_FRAMES = 16
NO_MORE = -1
STRATEGY_S = 5.0

Strategy: TypeAlias = Callable[[int, BaseException, ActiveJob], "float | Awaitable[float]"]
"""A custom pause: (attempts made, the error, the job) → ms; 0 = again at once, −1 = no further attempt."""


class Endings:
    """Says how attempts end. It never raises, whatever a processor or a strategy did.

    strategies: custom pauses by the name that a job's `Backoff.type` has.
    keep_stack: whether the frames of an exception are kept, as `Job.stack`.
    """

    def __init__(self, strategies: Mapping[str, Strategy] | None = None, *, keep_stack: bool = True) -> None:
        self._strategies = dict(strategies or {})
        self._keep_stack = keep_stack
        for name, strategy in self._strategies.items():
            Backoff(name).check()
            if name in BUILT_IN or not callable(strategy):
                raise InvalidOption("backoff_strategies", f"{name!r} must be a new name, with a function")

    def completed(self, job: ActiveJob, result: Any) -> Finish:
        """It returned `result`; one that cannot be stored fails the job."""
        try:
            return _end(job, "completed", encode_json("result", result, MAX_RESULT_BYTES))
        except InvalidOption as problem:
            return _failed(job, JobError("poison", clip(problem, MAX_MESSAGE_BYTES)), NO_MORE)

    def returned(self, job: ActiveJob) -> Finish:
        """Its worker stops: back to its place."""
        return _end(job, "returned", b"{}")

    def canceled(self, job: ActiveJob, problem: BaseException | None = None) -> Finish:
        """It was asked to stop, and did so by raising `problem`."""
        if isinstance(problem, RateLimitError):  # which is so for the others, too
            return self.stepped(job, problem)
        return _end(job, "canceled", _details(problem) if isinstance(problem, JobCanceled) else b"{}")

    def stepped(self, job: ActiveJob, problem: StepError) -> Finish:
        """It goes on later, and that was no attempt."""
        match problem:
            case DelayedError():
                return _end(job, "delayed", b"{}", whole_ms(getattr(problem, "delay_ms", 0)))
            case RateLimitError():
                return _end(job, "rate_limited", b"{}", whole_ms(getattr(problem, "duration_ms", 0)))
            case WaitingError():
                return _end(job, "waiting", b"{}")
            case WaitingChildrenError():
                return _end(job, "waiting-children", b"{}")
        return _failed(job, JobError("poison", f"{type(problem).__name__} is no step that a worker knows"), NO_MORE)

    def gave_up(self, job: ActiveJob, error: JobError) -> Finish:
        """It fails, whatever attempts are left."""
        return _failed(job, error, NO_MORE)

    async def raised(self, job: ActiveJob, problem: BaseException) -> Finish:
        """It raised `problem`."""
        if isinstance(problem, JobCanceled):
            return self.canceled(job, problem)
        if isinstance(problem, StepError):
            return self.stepped(job, problem)
        stack = _stack(problem) if self._keep_stack else ""
        error = _error(problem)
        if isinstance(problem, RetryLater):
            return _failed(job, error, whole_ms(getattr(problem, "delay_ms", 0)), stack)
        if isinstance(problem, UnrecoverableError):
            return _failed(job, error, NO_MORE, stack)
        try:
            pause_ms = await self._pause_ms(job, problem)
        except Exception as trouble:
            log.warning("job.no_pause", job=job.id, problem=type(trouble).__name__)
            message = _with(error.message, f"; no pause is known: {_text(trouble)}")
            error = msgspec.structs.replace(error, message=message)
            pause_ms = NO_MORE
        return _failed(job, error, pause_ms, stack)

    async def _pause_ms(self, job: ActiveJob, problem: BaseException) -> int:
        made = job.attempts_made + 1
        if made >= job.job.header.attempts:
            return NO_MORE
        backoff = job.job.header.backoff or Backoff("fixed", 0)
        if backoff.is_built_in:
            return backoff.pause_ms(made)
        strategy = self._strategies.get(backoff.type)
        if strategy is None:
            raise InvalidOption("backoff.type", f"this worker has no strategy {backoff.type!r}")
        try:
            async with asyncio.timeout(STRATEGY_S):
                pause_ms = strategy(made, problem, job)
                if inspect.isawaitable(pause_ms):
                    pause_ms = await pause_ms
            return NO_MORE if pause_ms < 0 else backoff.capped(whole_ms(pause_ms))
        except Exception as trouble:
            text = f"the strategy raised {type(trouble).__name__} {_text(trouble)}"
            raise InvalidOption(f"backoff {backoff.type}", text) from trouble


def whole_ms(value: float) -> int:
    """A pause that somebody named, as whole milliseconds in range; what is no number means none."""
    if not isinstance(value, int | float) or math.isnan(value):
        return 0
    return round(min(max(value, 0), MAX_DELAY_MS))


def error_of(finish: Finish) -> JobError | None:
    """Why an attempt failed, as it is recorded."""
    if finish.outcome != "failed":
        return None
    return msgspec.json.decode(finish.content.partition(b"\n")[0], type=JobError)


def _failed(job: ActiveJob, error: JobError, pause_ms: int, stack: str = "") -> Finish:
    content = msgspec.json.encode(error)
    return _end(job, "failed", content + b"\n" + stack.encode() if stack else content, pause_ms)


def _end(job: ActiveJob, outcome: str, content: bytes, pause_ms: int = NO_MORE) -> Finish:
    return Finish(job.id, job.lease, outcome, content, pause_ms)


def _error(problem: BaseException) -> JobError:
    message = clip(_text(problem) or type(problem).__name__, MAX_MESSAGE_BYTES)
    if isinstance(problem, ProcessorError):
        details: dict[str, Any] = msgspec.json.decode(_details(problem))
        return JobError(clip(problem.kind, MAX_KIND_BYTES), message, details)
    return JobError("transient", message, {"type": type(problem).__name__})


def _with(message: str, more: str) -> str:
    return clip(message, MAX_MESSAGE_BYTES // 2) + clip(more, MAX_MESSAGE_BYTES // 2)


def _text(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception:  # its own __str__ is at fault
        return ""


def _details(problem: ProcessorError) -> bytes:
    details = getattr(problem, "details", None)  # a subclass may not have called our __init__
    if not isinstance(details, dict):
        return b"{}"
    try:
        return encode_json("details", details, MAX_DETAILS_BYTES)
    except InvalidOption:
        return b"{}"


def _stack(problem: BaseException) -> str:
    """Where it was raised: `file:line function` a line, the innermost last. No values, nor text of the source."""
    frames = deque(traceback.walk_tb(problem.__traceback__), MAX_FRAMES)
    places = [(frame.f_code, line_number) for frame, line_number in frames]
    lines = [f"{Path(code.co_filename).name}:{line_number} {code.co_name}" for code, line_number in places]
    text = "\n".join(lines).encode("utf-8", "replace")
    return text[-MAX_STACK_BYTES:].decode("utf-8", "ignore")
