"""A job: its options, its immutable definition and the state it is in."""

import math
from enum import StrEnum
from typing import Any, Self, TypeVar

import msgspec

from orchestrator.backoff import MAX_DELAY_MS, Backoff
from orchestrator.errors import InvalidOption
from orchestrator.keys import check_job_id, check_queue_name

T = TypeVar("T")

MAX_PRIORITY = 2**21 - 1
MAX_ATTEMPTS = 100
MAX_DATA_BYTES = 512 * 1024
MAX_NAME_CHARS = 128
ON_FAILURE = ("fail_parent", "ignore", "remove", "continue_parent")

EVENT_TYPES = frozenset(
    {
        "added",
        "active",
        "progress",
        "milestone",
        "delayed",
        "waiting",
        "waiting-children",
        "stalled",
        "canceling",
        "completed",
        "failed",
        "canceled",
        "retried",
        "priority",
    }
)
"""Types of a job's events; `lua/README.md` says what each means and has."""


class JobState(StrEnum):
    """Where a job is. `waiting` covers BullMQ's `wait` and `prioritized`."""

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    WAITING_CHILDREN = "waiting-children"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_finished(self) -> bool:
        """Whether nothing more happens in this run."""
        return self in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELED)


class KeepJobs(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long finished jobs are kept: at most `count` of them, each at most `age_s` seconds.

    Source: BullMQ's KeepJobs; here the age is a real TTL and holds even in an idle queue.
    """

    age_s: int | None = None
    count: int | None = None

    @classmethod
    def of(cls, value: "bool | int | KeepJobs", field: str) -> "KeepJobs":
        """BullMQ's short forms: True = keep none, False = keep all, n = keep the n newest."""
        if isinstance(value, bool):
            return cls(count=0) if value else cls()
        if isinstance(value, int):
            value = cls(count=value)
        if not isinstance(value, cls):
            raise InvalidOption(field, "must be True, False, a count or KeepJobs")
        if value.age_s is not None:
            check_int(f"{field}.age_s", value.age_s, 0, MAX_DELAY_MS // 1000)
        if value.count is not None:
            check_int(f"{field}.count", value.count, 0, 10_000_000)
        return value


class Parent(msgspec.Struct, frozen=True, array_like=True):
    """The job that waits for this one."""

    queue: str
    id: str

    def check(self) -> None:
        """Raise `InvalidOption` unless both could be right."""
        try:
            check_queue_name(self.queue)
            check_job_id(self.id)
        except InvalidOption as problem:
            raise InvalidOption(f"parent.{problem.field}", problem.problem) from None


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer may say about a job. Everything is checked by `add`, before anything is sent.

    priority: 0 = none, first; then 1 (soonest) … 2,097,151 (last).
    delay_ms: not before so many milliseconds from now.
    lifo: before the waiting ones of its priority, not after them.
    attempts: how many attempts in all, 1 to 100.
    backoff: the pause before the next attempt; a number is a fixed pause in ms.
    timeout_ms: how long one attempt may run; 0 = no limit.
    expires_ms: it fails (reason "expired") unless it has started by then; 0 = never.
    max_stalled: how often its worker may be lost before it fails (reason "stalled").
    remove_on_complete, remove_on_fail: True, False, a count, or `KeepJobs`.
    keep_logs: how many of its own log lines are kept.
    notify: event types that go to the outbox, for the relay; see `orchestrator.events`.
    has_files: its result may lie in the storage, and goes when the job goes.
    parent: an unfinished job that waits for this one, in this queue or one of the same tag; see `orchestrator.flows`.
    on_failure: what this job's failure or cancellation means to its parent: "fail_parent" fails it at once, "ignore"
        is noted and no more, "remove" is as if there had been no child, "continue_parent" lets it go on at once.
    """

    id: str | None = None
    priority: int = 0
    delay_ms: int = 0
    lifo: bool = False
    attempts: int = 1
    backoff: Backoff | int | None = None
    timeout_ms: int = 0
    expires_ms: int = 0
    max_stalled: int = 1
    remove_on_complete: bool | int | KeepJobs = False
    remove_on_fail: bool | int | KeepJobs = False
    keep_logs: int = 1000
    notify: tuple[str, ...] = ()
    has_files: bool = False
    parent: Parent | None = None
    on_failure: str = "fail_parent"

    def header(self, name: str) -> "Header":
        """The checked, packed form that is stored as the definition's first line."""
        check_text("name", name, MAX_NAME_CHARS)
        if self.id is not None:
            check_job_id(self.id)
        check_int("priority", self.priority, 0, MAX_PRIORITY)
        check_int("delay_ms", self.delay_ms, 0, MAX_DELAY_MS)
        check_int("attempts", self.attempts, 1, MAX_ATTEMPTS)
        check_int("timeout_ms", self.timeout_ms, 0, MAX_DELAY_MS)
        check_int("expires_ms", self.expires_ms, 0, MAX_DELAY_MS)
        check_int("max_stalled", self.max_stalled, 0, MAX_ATTEMPTS)
        check_int("keep_logs", self.keep_logs, 0, 100_000)
        check_bool("lifo", self.lifo)
        check_bool("has_files", self.has_files)
        if not isinstance(self.notify, tuple) or not EVENT_TYPES.issuperset(self.notify):
            raise InvalidOption("notify", f"must be a tuple of event types: {', '.join(sorted(EVENT_TYPES))}")
        check_parent(self.parent, self.on_failure)
        backoff = Backoff("fixed", self.backoff) if isinstance(self.backoff, int) else self.backoff
        if backoff is not None:
            if not isinstance(backoff, Backoff):
                raise InvalidOption("backoff", "must be a Backoff or a pause in milliseconds")
            backoff.check()
        kept = KeepJobs.of(self.remove_on_complete, "remove_on_complete")
        kept_failed = KeepJobs.of(self.remove_on_fail, "remove_on_fail")
        return Header(
            name=name,
            priority=self.priority,
            delay_ms=self.delay_ms,
            lifo=self.lifo,
            attempts=self.attempts,
            backoff=backoff,
            timeout_ms=self.timeout_ms,
            expires_ms=self.expires_ms,
            max_stalled=self.max_stalled,
            complete_age_s=kept.age_s,
            complete_count=kept.count,
            fail_age_s=kept_failed.age_s,
            fail_count=kept_failed.count,
            keep_logs=self.keep_logs,
            notify=self.notify,
            has_files=self.has_files,
            parent=self.parent,
            on_failure=self.on_failure,
        )


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of a stored definition: what the scripts need to know, defaults left out.

    The scripts read the short names; `lua/README.md` lists them.
    """

    name: str = msgspec.field(name="n")
    priority: int = msgspec.field(name="p", default=0)
    delay_ms: int = msgspec.field(name="d", default=0)
    lifo: bool = msgspec.field(name="l", default=False)
    attempts: int = msgspec.field(name="a", default=1)
    backoff: Backoff | None = msgspec.field(name="b", default=None)
    timeout_ms: int = msgspec.field(name="t", default=0)
    expires_ms: int = msgspec.field(name="x", default=0)
    max_stalled: int = msgspec.field(name="m", default=1)
    complete_age_s: int | None = msgspec.field(name="ca", default=None)
    complete_count: int | None = msgspec.field(name="cc", default=None)
    fail_age_s: int | None = msgspec.field(name="fa", default=None)
    fail_count: int | None = msgspec.field(name="fc", default=None)
    keep_logs: int = msgspec.field(name="k", default=1000)
    notify: tuple[str, ...] = msgspec.field(name="w", default=())
    has_files: bool = msgspec.field(name="f", default=False)
    parent: Parent | None = msgspec.field(name="pa", default=None)
    on_failure: str = msgspec.field(name="of", default="fail_parent")
    children: int = msgspec.field(name="ch", default=0)


class JobError(msgspec.Struct, frozen=True):
    """Why an attempt or a job failed.

    kind: transient, poison, out_of_memory, canceled, timeout, stalled or expired.
    """

    kind: str
    message: str
    details: dict[str, Any] = {}


class CancelRequest(msgspec.Struct, frozen=True):
    """Who asked for the cancellation, and why."""

    by: str = ""
    reason: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was when it was read. Instants are ms since the epoch, by the server's clock."""

    queue: str
    id: str
    header: Header
    data: msgspec.Raw
    state: JobState
    created_at: int
    run: int = 1
    priority: int = 0
    attempts_started: int = 0
    attempts_made: int = 0
    stalled: int = 0
    due_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    expires_at: int | None = None
    worker: str | None = None
    lease: str | None = None
    progress: Any = None
    preview: Any = None
    result: msgspec.Raw | None = None
    error: JobError | None = None
    reason: str | None = None
    cancel: CancelRequest | None = None
    pending_children: int | None = None
    duplicated: bool = False

    @property
    def name(self) -> str:
        """What kind of job it is."""
        return self.header.name

    @property
    def parent(self) -> Parent | None:
        """The job that it was added as a child of."""
        return self.header.parent

    @property
    def attempt_key(self) -> str:
        """Names the newest attempt among all of this job: its files lie under `<id>/<attempt_key>/`."""
        return f"{self.run}-{self.lease}"

    def data_as(self, type_: type[T]) -> T:
        """The data, decoded and validated as `type_`."""
        return msgspec.json.decode(self.data, type=type_)

    def result_as(self, type_: type[T]) -> T | None:
        """The result, decoded as `type_`; None while there is none."""
        return None if self.result is None else msgspec.json.decode(self.result, type=type_)

    def replace(self, **changes: Any) -> Self:
        """A copy with `changes`."""
        return msgspec.structs.replace(self, **changes)


def encode_json(field: str, value: object, max_bytes: int) -> bytes:
    """`value` as JSON. Raises `InvalidOption` for what JSON cannot say (NaN, cycles …) and for what is too long."""
    try:
        if isinstance(value, msgspec.Raw):
            msgspec.json.decode(value)  # whole: a number out of range would be found too late
            text = bytes(value)
        else:
            text = msgspec.json.encode(value)
            if b"null" in text:  # msgspec writes NaN and the infinities as null: somebody's number would be lost
                _refuse_nan(msgspec.to_builtins(value, enc_hook=lambda raw: None))
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError) as problem:
        raise InvalidOption(field, f"cannot be written as JSON: {problem}") from None
    if len(text) > max_bytes:
        raise InvalidOption(field, f"is {len(text)} bytes of JSON; at most {max_bytes} are allowed")
    return text


def clip(text: object, max_bytes: int) -> str:
    """The beginning of a text for people, such that it fits in `max_bytes` of JSON; what is no Unicode becomes `?`."""
    kept = str(text)[:max_bytes].encode("utf-8", "replace").decode()
    while len(msgspec.json.encode(kept)) > max_bytes:
        kept = kept[: len(kept) * 3 // 4]
    return kept


def _refuse_nan(value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no JSON number")
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for each in value:
            _refuse_nan(each)


def check_parent(parent: Parent | None, on_failure: str) -> None:
    """Raise `InvalidOption` unless `parent` is one, and `on_failure` a policy that has a parent to be about."""
    if on_failure not in ON_FAILURE:
        raise InvalidOption("on_failure", f"must be one of {', '.join(ON_FAILURE)}")
    if parent is None:
        if on_failure != "fail_parent":
            raise InvalidOption("on_failure", "says something about a parent, and there is none")
        return
    if not isinstance(parent, Parent):
        raise InvalidOption("parent", "must be a Parent")
    parent.check()


def check_text(field: str, value: object, max_chars: int) -> None:
    """Raise `InvalidOption` unless `value` is text of 1 to `max_chars` characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= max_chars:
        raise InvalidOption(field, f"must be text of 1 to {max_chars} characters")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidOption(field, "has lone surrogates, which are no Unicode text")


def check_bool(field: str, value: object) -> None:
    """Raise `InvalidOption` unless `value` is True or False."""
    if not isinstance(value, bool):
        raise InvalidOption(field, "must be True or False")


def check_int(field: str, value: object, low: int, high: int) -> None:
    """Raise `InvalidOption` unless `value` is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidOption(field, f"must be a whole number from {low} to {high}")
