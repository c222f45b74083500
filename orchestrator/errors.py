"""The errors of Kargah, as one tree.

KargahError
├── InvalidOption            an argument that can never be right; names the field
├── JobNotFound              no such job, or its record has ended
├── FileMissing              no such file in the storage
├── WrongState               the job is not in a state that allows the call
├── LeaseLost                the caller no longer holds the job
├── QueueFull                the queue takes no more; try again later
├── FlowRefused              a job cannot become the parent, or the child, that the call wants it to be
├── QueuePaused              manual claim on a paused queue
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
    ├── WaitingChildrenError  go on when all children have ended; no attempt is used
    └── JobCanceled          the processor stopped because it was asked to
"""

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


class QueuePaused(KargahError):
    """The queue is paused."""


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


class WaitingChildrenError(ProcessorError):
    """The job goes on when all its children have ended: it runs again, from the start, and no attempt is used.

    With no child pending it goes back into the queue at its place.

    Source: BullMQ's WaitingChildrenError.
    """

    kind = "waiting-children"

    def __init__(self, message: str = "waits for its children", **details: Any) -> None:
        super().__init__(message, **details)


class JobCanceled(ProcessorError):
    """The processor stopped because the job was canceled; `details` may say at which step."""

    kind = "canceled"
