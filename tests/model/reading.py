"""Calls that only read."""

from collections.abc import Sequence
from typing import Any

import msgspec

from orchestrator.job import CancelRequest, JobError
from tests.model.job import FINISHED, ModelEvent, ModelJob
from tests.model.journal import json
from tests.model.state import State, ordered


class Reading(State):
    """What reads jobs, counts and events."""

    def get_job(self, job_id: str, *, history: bool) -> Any:
        job = self.jobs.get(job_id)
        if job is None:
            return None
        return read_job(job), [event.id for event in job.history] if history else [], self._last_event_id()

    def get_jobs(self, states: Sequence[str], start: int, count: int) -> Any:
        pages = [self._ids(state)[start : start + count] for state in states]
        ids = [job_id for page in pages for job_id in page]
        return self._read(ids), self._last_event_id(), max((len(page) for page in pages), default=0)

    def get_recent(self, start: int, count: int) -> Any:
        ids = [job_id for state in ("active", "waiting", "delayed", "waiting-children") for job_id in self._ids(state)]
        times = [(at, job_id) for state in FINISHED for job_id, at in self.finished[state].items()]
        ids += [job_id for _, job_id in sorted(times, reverse=True)]
        page = ids[start : start + count]
        return self._read(page), self._last_event_id(), len(page)

    def get_counts_per_priority(self, priorities: Sequence[int]) -> list[int]:
        waiting = [job.current_priority for job in self.of("waiting")]
        return [waiting.count(priority) for priority in priorities]

    def get_meta(self, *names: str) -> list[str]:
        limits = self.limits
        texts = {
            "epoch": str(self.epoch or 0),
            "paused": "1" if limits.paused else "",
            "concurrency": str(limits.concurrency or ""),
            "limited_until": str(limits.limited_until or ""),
            "metrics": "off" if self.counters.are_off else "",
        }
        return [texts[name] for name in names]

    def get_limits(self) -> Any:
        limits, now = self.limits, self.now
        wait_ms = 0
        if (limits.limited_until or 0) > now:
            wait_ms = (limits.limited_until or 0) - now
        elif limits.rate is not None:
            wait_ms = limits.window.allows(now, *limits.rate, 1)[1] or 0
        return limits.concurrency or 0, *(limits.rate or (0, 0)), wait_ms, len(self.of("active"))

    def get_counts(self) -> dict[str, int]:
        waiting = self.of("waiting")
        counts = {"waiting": len(waiting), "prioritized": len([job for job in waiting if job.current_priority])}
        counts["grouped"] = len(self.in_groups())
        counts |= {state: len(self.of(state)) for state in ("delayed", "active", "waiting-children")}
        for state in FINISHED:
            due = [at for at in self.expires[state].values() if at <= self.now]
            counts[state] = len(self.finished[state]) - len(due)
        return counts

    def get_events(self, after: str, count: int) -> list[ModelEvent] | None:
        events = self.journal.events[self.journal.trimmed :]
        ids = [event.id for event in events]
        if after in ids:
            return events[ids.index(after) + 1 :][:count]
        is_before_all = after in ("0-0", self._id_before_all()) and not self.journal.trimmed
        return events[:count] if is_before_all else None

    def get_due_files(self, count: int) -> list[str]:
        return [path for path in ordered(self.sweep) if self.sweep[path] <= self.now][:count]

    def _ids(self, state: str) -> list[str]:
        if state in FINISHED:
            return ordered(self.finished[state])[::-1]
        return [job.id for job in self.of(state)]

    def _read(self, ids: list[str]) -> list[Any]:
        return [read_job(self.jobs[job_id]) for job_id in ids if job_id in self.jobs]

    def _last_event_id(self) -> str:
        events = self.journal.events[self.journal.trimmed :]
        return events[-1].id if events else self._id_before_all()

    def _id_before_all(self) -> str:
        return "0-0" if self.epoch is None else f"{self.epoch - 1}-0"


def read_job(job: ModelJob) -> dict[str, Any]:
    """What readers get of a job."""
    return {
        "id": job.id, "data": msgspec.Raw(job.data), "state": job.state, "created_at": job.created_at, "run": job.run,
        "priority": job.current_priority, "attempts_started": job.started or 0, "attempts_made": job.made or 0,
        "stalled": job.stalled or 0, "due_at": job.due_at, "started_at": job.started_at,
        "finished_at": job.finished_at, "expires_at": job.expires_at, "worker": job.worker, "lease": job.lease,
        "progress": job.progress and json(job.progress), "preview": job.preview and json(job.preview),
        "result": job.result and msgspec.Raw(job.result.encode()), "reason": job.reason, "stack": job.stack,
        "checkpoint": job.checkpoint and json(job.checkpoint),
        "error": job.error and msgspec.json.decode(job.error, type=JobError),
        "pending_children": job.children,
        "cancel": job.cancel and msgspec.json.decode(job.cancel, type=CancelRequest),
    }  # fmt: skip
