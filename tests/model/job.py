"""A job as the model knows it, and an event."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from orchestrator.job import Header

MIDDLE = 2**52
UNGROUPED = "*"
FINISHED = ("completed", "failed", "canceled")


@dataclass(eq=False)
class ModelEvent:
    """An event; `id` is learned from the server, which alone makes ids: `ms` is what the id begins with."""

    fields: dict[str, Any]
    ms: int = 0
    id: str = ""
    begins_entry: bool = True

    def __getattr__(self, name: str) -> Any:
        return self.fields[name]


@dataclass(eq=False)
class ModelJob:
    """A job's definition and record. Names of the record are those of lua/includes/job_record.lua."""

    id: str
    definition: bytes
    created_at: int
    token: str
    state: str = "waiting"
    run: int = 1
    sequence: int = 0
    seq: int = 1
    priority: int | None = None
    due_at: int | None = None
    started: int | None = None
    made: int | None = None
    stalled: int | None = None
    lease: str | None = None
    worker: str | None = None
    started_at: int | None = None
    finished_at: int | None = None
    expires_at: int | None = None
    progress: str | None = None
    preview: str | None = None
    reported: int | None = None
    told_at: int | None = None
    cancel: str | None = None
    cancel_at: int | None = None
    reason: str | None = None
    error: str | None = None
    result: str | None = None
    notify: str | None = None
    plain: str | None = None
    checkpoint: str | None = None
    stack: str | None = None
    entered_at: int | None = None
    ungrouped: str | None = None
    affinity_key: str | None = None
    batch_key: str | None = None
    passed_at: int | None = None
    children: int | None = None
    completed_children: int | None = None
    ignored_children: int | None = None
    failed_child: str | None = None
    continued: str | None = None
    delay_after: int | None = None

    family: dict[str, str] = field(default_factory=dict)
    parked_at: int = 0
    lease_ends_at: int = 0
    waits: bool = False
    group_score: int = 0
    lines: list[str] = field(default_factory=list)
    history: list[ModelEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        line, _, self.data = self.definition.partition(b"\n")
        self.header: Header = msgspec.json.decode(line, type=Header)
        self.notify = " ".join(self.header.notify) or None
        self.plain = "true" if self.is_plain else None
        self.affinity_key, self.batch_key = self.header.affinity_key, self.header.batch_key

    @property
    def current_priority(self) -> int:
        return self.header.priority if self.priority is None else self.priority

    @property
    def group(self) -> str | None:
        """The group it shares with: its own, or where the queue treats jobs without one as a group, that."""
        return UNGROUPED if self.ungrouped else self.header.group

    @property
    def waits_since(self) -> int:
        """Its newest event: a clock that was set back makes the event `added` later than the job."""
        return self.created_at if len(self.history) == 1 else self.history[-1].ms

    @property
    def member(self) -> str:
        return f"{self.sequence:016x}:{self.id}"

    @property
    def added(self) -> str:
        return self.history[0].id

    @property
    def added_event(self) -> ModelEvent:
        return self.history[0]

    @property
    def is_plain(self) -> bool:
        """Whether the header says nothing that a claim or an end has to know."""
        header = self.header
        kept = header.complete_age_s, header.complete_count, header.fail_age_s, header.fail_count
        others = header.deduplication, header.parent, header.has_files, header.priority, header.expires_ms, header.group
        return not any(others) and all(value is None for value in kept)

    @property
    def files(self) -> str | None:
        """Where the pictures of a completed job lie."""
        return f"{self.id}/{self.run}-{self.lease}" if self.state == "completed" and self.header.has_files else None

    def forget_run(self) -> None:
        """Begin the next run: nothing of the last one stays but its history, and how far it had come."""
        if self.state == "completed":
            self.checkpoint = None
        self.run += 1
        self.started = self.made = self.stalled = None
        self.lease = self.worker = self.progress = self.preview = self.cancel = None
        self.reason = self.error = self.stack = self.result = None
        self.started_at = self.finished_at = self.expires_at = self.cancel_at = None
        self.failed_child = self.continued = self.delay_after = self.due_at = None
