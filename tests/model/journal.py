"""Events: of jobs, numbered in each; of the queue; and those that the relay is to hear."""

from typing import Any

import msgspec

from tests.model.job import ModelEvent, ModelJob

PROGRESS_TO_OUTBOX_MS = 500
TOGETHER = 8


class Journal:
    """All events in their order, and the outbox: what has no entry id yet, and the ids of what has one.

    trimmed: so many of the first events are not in the stream any more. lives: how often a stream was deleted.
    told: so many events the call under way has told; they stand in entries of eight.
    newest_ms, newest_number: the id of the newest event, which the queue's record keeps.
    """

    def __init__(self) -> None:
        self.events: list[ModelEvent] = []
        self.trimmed = 0
        self.told = 0
        self.newest_ms = self.newest_number = 0
        self.lives = {"events": 0, "outbox": 0}
        self.outbox: list[str] = []
        self.new_for_outbox: list[tuple[ModelEvent, ModelJob]] = []
        self.notify = ""

    def queue_event(self, now: int, kind: str, **fields: Any) -> None:
        self._append(now, ModelEvent({"type": kind, "at": now, **fields}))

    def begin_anew(self, stream: str) -> None:
        """The stream was deleted."""
        self.lives[stream] += 1
        if stream == "events":
            self.events, self.trimmed = [], 0
        else:
            self.outbox = []

    def forget_newest(self) -> None:
        """The queue's record was deleted: a new one goes on after the events that are still in the stream."""
        if not self.events:
            self.newest_ms = self.newest_number = 0

    def added(self, now: int, job: ModelJob) -> None:
        fields: dict[str, Any] = {"state": job.state}
        if job.state == "delayed":
            fields["due_at"] = job.due_at
        fields |= {"name": job.header.name, "priority": job.header.priority}
        self._tell(now, job, ModelEvent(_event(job, "added", job.created_at, fields)))

    def job_event(self, now: int, job: ModelJob, kind: str, **fields: Any) -> None:
        job.seq += 1
        self._tell(now, job, ModelEvent(_event(job, kind, now, fields)))

    def _tell(self, now: int, job: ModelJob, event: ModelEvent) -> None:
        self._append(now, event)
        job.history.append(event)
        kind = event.fields["type"]
        if kind not in f"{job.notify or ''} {self.notify}".split():
            return
        if kind == "progress":
            if now - (job.told_at or 0) < PROGRESS_TO_OUTBOX_MS:
                return
            job.told_at = now
        self.new_for_outbox.append((event, job))

    def _append(self, now: int, event: ModelEvent) -> None:
        if now > self.newest_ms:
            self.newest_ms, self.newest_number = now, 0
        else:
            self.newest_number += 1
        event.ms = self.newest_ms
        event.begins_entry = self.told % TOGETHER == 0
        self.told += 1
        self.events.append(event)

    def trim(self, count: int) -> int:
        """Keep so many entries; returns how many went."""
        starts = [n for n, event in enumerate(self.events) if n >= self.trimmed and event.begins_entry]
        gone = max(len(starts) - count, 0)
        if gone:
            self.trimmed = starts[gone] if gone < len(starts) else len(self.events)
        return gone


def json(text: str) -> Any:
    """The value of a piece of JSON inside an event."""
    return msgspec.json.decode(text)


def _event(job: ModelJob, kind: str, at: int, fields: dict[str, Any]) -> dict[str, Any]:
    first = {"type": kind, "job": job.id, "at": at, "run": job.run, "attempt": job.started or 0, "seq": job.seq}
    return first | fields
