"""A job: its options, its immutable definition and the state it is in."""

import math
from enum import StrEnum
from typing import Any, Self, TypeVar

import msgspec

from orchestrator.backoff import MAX_DELAY_MS, Backoff
from orchestrator.deduplication import Deduplication
from orchestrator.errors import InvalidOption
from orchestrator.given import RemembersGiven, given
from orchestrator.keys import check_group_id, check_job_id
from orchestrator.parent import Parent, check_parent
from orchestrator.telemetry import trace_context

T = TypeVar("T")

MAX_PRIORITY = 2**21 - 1
KEEP_ALL = -1
MAX_ATTEMPTS = 100
MAX_DATA_BYTES = 512 * 1024
MAX_NAME_CHARS = 128
MAX_AFFINITY_CHARS = 256

EVENT_TYPES = frozenset((
    "added", "active", "progress", "milestone", "checkpoint", "delayed", "waiting",
    "waiting-children", "stalled", "canceling", "completed", "failed", "canceled", "retried", "priority",
))  # fmt: skip
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
    """How long finished jobs are kept: at most `count` of them, each at most `age_s` seconds; without both, for ever.

    Source: BullMQ's KeepJobs; here the age is a real TTL and holds even in an idle queue.
    """

    age_s: int | None = None
    count: int | None = None

    @classmethod
    def of(cls, value: "bool | int | KeepJobs | None", field: str) -> "KeepJobs":
        """BullMQ's short forms: True = keep none, False = keep all, n = keep the n newest; None = nothing is said.

        The answer's `count` is −1 where all are to be kept, and None where nothing was said.
        """
        if value is None:
            return cls()
        if isinstance(value, bool):
            return cls(count=0 if value else KEEP_ALL)
        if isinstance(value, int):
            value = cls(count=value)
        if not isinstance(value, cls):
            raise InvalidOption(field, "must be True, False, a count or KeepJobs")
        if value.age_s is not None:
            check_int(f"{field}.age_s", value.age_s, 0, MAX_DELAY_MS // 1000)
        if value.count is not None:
            check_int(f"{field}.count", value.count, 0, 10_000_000)
        return cls(count=KEEP_ALL) if value == cls() else value


class JobOptions(msgspec.Struct, metaclass=RemembersGiven, frozen=True, kw_only=True, dict=True):
    """What a producer may say about a job. Everything is checked by `add`, before anything is sent.

    id: 1 to 128 letters, digits, '_', '.', ':', '@' and '-'; None = one is made. Adding the same id again is safe: it
        answers with the job that is there.
    priority: 0 = none, first; then 1 (soonest) … 2,097,151 (last).
    delay_ms: not before so many milliseconds from now.
    lifo: before the waiting ones of its priority, not after them.
    attempts: how many attempts in all, 1 to 100.
    backoff: the pause before the next attempt; a number is a fixed pause in ms.
    timeout_ms: how long one attempt may run; 0 = no limit.
    expires_ms: it fails (reason "expired") unless it has started by then; 0 = never.
    max_stalled: how often its worker may be lost before it fails (reason "stalled").
    remove_on_complete, remove_on_fail: True, False, a count, or `KeepJobs`; None = as the worker says, else False.
    keep_logs: how many of its own log lines are kept.
    notify: event types that go to the outbox, for the relay; see `orchestrator.events`.
    has_files: its result may lie in the storage, and goes when the job goes.
    group: whose job it is: groups share the workers by weight and cost.
    cost: what the job is expected to cost, in any unit that all jobs of the queue share; 0.001 to 1,000,000.
    batch_key: jobs of one key may be run together by a worker that takes batches.
    affinity_key: what a worker has to load for it; a worker that has it warm is preferred for a while.
    telemetry: the spans of its attempts continue the trace of whoever adds it, see `orchestrator.telemetry`.
    deduplication: which jobs count as the same one; see `Deduplication`.
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
    remove_on_complete: bool | int | KeepJobs | None = None
    remove_on_fail: bool | int | KeepJobs | None = None
    keep_logs: int = 1000
    notify: tuple[str, ...] = ()
    has_files: bool = False
    group: str | None = None
    cost: float = 1.0
    batch_key: str | None = None
    affinity_key: str | None = None
    telemetry: bool = True
    deduplication: Deduplication | None = None
    parent: Parent | None = None
    on_failure: str = "fail_parent"

    def over(self, defaults: "JobOptions") -> "JobOptions":
        """These options; what they do not name is as in `defaults`, but for the id, which is nobody's default."""
        inherited = given(defaults) - {"id"}
        if not inherited:
            return self
        fields = {name: getattr(defaults, name) for name in inherited}
        return JobOptions(**fields | {name: getattr(self, name) for name in given(self)})

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
        self._check_turn()
        check_bool("telemetry", self.telemetry)
        if not isinstance(self.notify, tuple) or not EVENT_TYPES.issuperset(self.notify):
            raise InvalidOption("notify", f"must be a tuple of event types: {', '.join(sorted(EVENT_TYPES))}")
        check_parent(self.parent, self.on_failure)
        backoff = Backoff("fixed", self.backoff) if isinstance(self.backoff, int) else self.backoff
        if backoff is not None:
            if not isinstance(backoff, Backoff):
                raise InvalidOption("backoff", "must be a Backoff or a pause in milliseconds")
            backoff.check()
        if self.deduplication is not None:
            if not isinstance(self.deduplication, Deduplication):
                raise InvalidOption("deduplication", "must be a Deduplication")
            self.deduplication.check()
            if self.parent is not None:
                raise InvalidOption("deduplication", "does not go with a parent, which waits for a job of its own")
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
            group=self.group,
            cost=self.cost,
            batch_key=self.batch_key,
            affinity_key=self.affinity_key,
            trace_context=trace_context() if self.telemetry else "",
            deduplication=self.deduplication,
        )

    def _check_turn(self) -> None:
        if self.group is not None:
            check_group_id(self.group)
        check_number("cost", self.cost, 0.001, 1_000_000)
        if self.batch_key is not None:
            check_group_id(self.batch_key, "batch_key")
        if self.affinity_key is not None:
            check_text("affinity_key", self.affinity_key, MAX_AFFINITY_CHARS)


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
    group: str | None = msgspec.field(name="g", default=None)
    cost: float = msgspec.field(name="co", default=1.0)
    batch_key: str | None = msgspec.field(name="bk", default=None)
    affinity_key: str | None = msgspec.field(name="ak", default=None)
    schedule: str | None = msgspec.field(name="sc", default=None)
    trace_context: str = msgspec.field(name="tm", default="")
    deduplication: Deduplication | None = msgspec.field(name="dd", default=None)
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
    """A job as it was when it was read. Instants are ms since the epoch, by the server's clock.

    header: its options, as they were added; `priority` is the present one. data: as JSON, see `data_as`.
    run: 1, and one more for each retry by hand. attempts_started, attempts_made (that count), stalled: of this run.
    created_at, due_at (of a delayed one), started_at (its newest attempt), finished_at, expires_at (its record's end).
    worker, lease: who has it, or had it last. progress, preview: the newest that was told.
    checkpoint: how far it has come, as its processor said. result: as JSON, see `result_as`.
    error: why the last attempt failed. stack: where, `file:line function` a line; told in no event.
    reason: why a failed one ended: error, timeout, expired, stalled or child. cancel: who asked for that.
    pending_children: how many jobs it waits for. duplicated, deduplicated: this is not the job of the add that answered
    it, but one of the same id, or of the same deduplication id. queue, id, state: as they say.
    """

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
    checkpoint: Any = None
    result: msgspec.Raw | None = None
    error: JobError | None = None
    stack: str | None = None
    reason: str | None = None
    cancel: CancelRequest | None = None
    pending_children: int | None = None
    duplicated: bool = False
    deduplicated: bool = False

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
    """`value` as a line of JSON. Raises `InvalidOption` for what JSON cannot say (NaN …) and for what is too long."""
    try:
        if isinstance(value, msgspec.Raw):
            msgspec.json.decode(value)  # whole: a number out of range would be found too late
            text = bytes(value)
        else:
            text = msgspec.json.encode(value)
            if value is not None and b"null" in text:  # as msgspec writes NaN and the infinities, too
                _refuse_nan(msgspec.to_builtins(value, enc_hook=lambda raw: None))
        if b"\n" in text:  # of a `Raw`, whole or inside; events are told a line each
            text = msgspec.json.format(text, indent=-1)
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


def check_number(field: str, value: object, low: float, high: float) -> None:
    """Raise `InvalidOption` unless `value` is a number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidOption(field, f"must be a number from {low:g} to {high:,.0f}")


def check_int(field: str, value: object, low: int, high: int) -> None:
    """Raise `InvalidOption` unless `value` is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidOption(field, f"must be a whole number from {low} to {high}")
