"""The errors of Kargah, as one tree.

KargahError
├── InvalidOption            an argument that can never be right; names the field
├── JobNotFound              no such job, or its record has ended
├── FileMissing              no such file in the storage
├── WrongState               the job is not in a state that allows the call
├── LeaseLost                the caller no longer holds the job
├── QueueFull                the queue takes no more; try again later
│   └── GroupFull            the group takes no more
├── FlowRefused              a job cannot become the parent, or the child, that the call wants it to be
├── BulkIncomplete           of many jobs some were stored; says which
├── JobEnded                 a job that was waited for has no result
│   ├── JobFailed            it failed; has the reason and the error's kind and details
│   └── JobWasCanceled       it was canceled; has who asked and why
├── LayoutMismatch           the data in Redis were written by another major version
├── StartFailed              the service cannot start here; the message says what to do
├── StoreUnavailable         Redis is away, full or read-only; nothing was changed
│   └── OutcomeUnknown       no answer came in time: the call may have had its effect
├── ServiceUnreachable       (in the client) nothing answers at the service's URL
├── RequestRefused           (in the client) the service answered with an error; has its status and field
└── ProcessorError           what a processor raises; decides what becomes of the attempt
    ├── TransientError       try again after the backoff (also any foreign exception)
    │   └── RetryLater       try again after a delay the processor names
    ├── UnrecoverableError   never try again ("poison")
    ├── OutOfMemory          the device's memory did not suffice
    ├── AttemptTimeout       the attempt ran longer than `timeout_ms`
    ├── JobCanceled          the processor stopped because it was asked to
    └── StepError            no end: the job goes on later, and no attempt is counted
        ├── DelayedError     … after a delay
        ├── WaitingError     … from its old place among the waiting
        ├── RateLimitError   … from its old place, once the whole queue may start jobs again
        └── WaitingChildrenError  … when all its children have ended
"""

import math
from typing import Any, ClassVar


class KargahError(Exception):
    """Root of all errors raised on purpose by Kargah."""


class InvalidOption(KargahError, ValueError):
    """An option that can never be right.

    `field` names it as the caller wrote it, `problem` says what is wrong with it.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class JobNotFound(KargahError, LookupError):
    """There is no job of this id (it never was, was removed, or its retention ended)."""


class FileMissing(KargahError, LookupError):
    """There is no file of this path in the storage."""


class WrongState(KargahError):
    """The job's state does not allow the call; the message names both."""


class LeaseLost(KargahError):
    """The job is no longer held by this token: it stalled, was finished or was canceled."""


class QueueFull(KargahError):
    """The queue takes no more jobs for now; nothing was stored."""


class FlowRefused(KargahError):
    """The parent is missing or has finished, an id is taken, or the tree is too large; nothing was changed."""


class BulkIncomplete(KargahError):
    """A bulk that was not atomic stopped on the way; `__cause__` says why.

    stored: the ids that were stored, a list for each chunk. unknown: those of the chunk whose answer did not come.
    missing: those that were not stored. Adding the unknown and the missing ones again, under these ids, is safe.
    """

    def __init__(self, problem: Exception, stored: list[list[str]], unknown: list[str], missing: list[str]) -> None:
        count = sum(map(len, stored))
        super().__init__(f"{count} jobs were stored, {len(unknown)} may be, {len(missing)} were not: {problem}")
        self.stored = stored
        self.unknown = unknown
        self.missing = missing


class GroupFull(QueueFull):
    """The group takes no more jobs for now; nothing was stored."""


class JobEnded(KargahError):
    """A job that was waited for ended without a result."""

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobFailed(JobEnded):
    """A job that was waited for failed.

    reason: error, timeout, expired, stalled or child. kind, problem, details: of its last error.
    """

    def __init__(self, job_id: str, reason: str, kind: str, problem: str, details: dict[str, Any]) -> None:
        super().__init__(f"job {job_id} failed ({reason}): {problem}", job_id)
        self.reason = reason
        self.kind = kind
        self.problem = problem
        self.details = details


class JobWasCanceled(JobEnded):
    """A job that was waited for was canceled: `by` whom, and why (`reason`)."""

    def __init__(self, job_id: str, by: str, reason: str) -> None:
        super().__init__(f"job {job_id} was canceled" + (f": {reason}" if reason else ""), job_id)
        self.by = by
        self.reason = reason


class LayoutMismatch(KargahError):
    """The keys of this queue were written by another major version; nothing was changed."""


class StartFailed(KargahError):
    """The service cannot start here (folder in use, port taken, wrong server); the message says what to do."""


class StoreUnavailable(KargahError):
    """Redis cannot take the call now (away, loading, full, read-only); nothing was changed."""


class OutcomeUnknown(StoreUnavailable):
    """No answer came before the deadline; the call may or may not have had its effect.

    Sending it again with the same ids is safe.
    """


class ServiceUnreachable(KargahError):
    """Nothing answers at the service's URL; whether a request arrived is unknown."""


class RequestRefused(KargahError):
    """The service answered with an error: `status` is HTTP's, `field` the part of the request that it names."""

    def __init__(self, status: int, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.field = field


class ProcessorError(KargahError):
    """Raised by a processor to say what becomes of its attempt.

    `kind` is the word stored with the job; `details` is JSON-able and stored beside it.
    """

    kind: ClassVar[str] = "transient"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


class TransientError(ProcessorError):
    """Worth another attempt."""


class RetryLater(TransientError):
    """Worth another attempt in `delay_ms` from now, whatever the job's backoff says."""

    def __init__(self, message: str, delay_ms: int, **details: Any) -> None:
        super().__init__(message, **details)
        self.delay_ms = delay_ms


class UnrecoverableError(ProcessorError):
    """Another attempt cannot help: straight to `failed`, whatever attempts are left.

    Source: BullMQ's UnrecoverableError.
    """

    kind = "poison"


class OutOfMemory(ProcessorError):
    """The device ran out of memory."""

    kind = "out_of_memory"


class AttemptTimeout(ProcessorError):
    """The attempt ran longer than its `timeout_ms`."""

    kind = "timeout"


class JobCanceled(ProcessorError):
    """The processor stopped because the job was canceled; `details` may say at which step."""

    kind = "canceled"


class StepError(ProcessorError):
    """Raised when the job is to go on later, with its checkpoint: no end, and no attempt is counted.

    A job that was canceled in the meantime ends as canceled instead.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message or type(self).__name__)


class DelayedError(StepError):
    """Go on in `delay_ms` from now; the job is delayed until then and keeps its priority.

    Source: BullMQ's DelayedError with moveToDelayed.
    """

    def __init__(self, delay_ms: float) -> None:
        super().__init__(f"goes on in {delay_ms} ms")
        self.delay_ms = _pause("delay_ms", delay_ms)


class WaitingError(StepError):
    """Go on as soon as a worker is free; the job gets back its old place.

    Source: BullMQ's WaitingError with moveToWait.
    """


class RateLimitError(StepError):
    """An outside API takes no more: nothing of this queue starts for `duration_ms`, and the job gets its place back.

    Both in one step; 0 only gives the job back.

    Source: BullMQ's RateLimitError with rateLimit.
    """

    def __init__(self, duration_ms: float = 0) -> None:
        super().__init__(f"nothing starts for {duration_ms} ms")
        self.duration_ms = _pause("duration_ms", duration_ms)


class WaitingChildrenError(StepError):
    """Go on when all children have ended: from the job's old place, at once where none is pending.

    Source: BullMQ's WaitingChildrenError.
    """


def _pause(field: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidOption(field, "must be 0 or more milliseconds")
    return value
