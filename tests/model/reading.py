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
        ids = [job_id for state in states for job_id in self._ids(state)[start : start + count]]
        return self._read(ids), self._last_event_id()

    def get_recent(self, start: int, count: int) -> Any:
        ids = [job_id for state in ("active", "waiting", "delayed") for job_id in self._ids(state)]
        times = [(at, job_id) for state in FINISHED for job_id, at in self.finished[state].items()]
        ids += [job_id for _, job_id in sorted(times, reverse=True)]
        return self._read(ids[start : start + count]), self._last_event_id()

    def get_counts(self) -> dict[str, int]:
        waiting = self.of("waiting")
        counts = {"waiting": len(waiting), "prioritized": len([job for job in waiting if job.current_priority])}
        counts |= {state: len(self.of(state)) for state in ("delayed", "active")}
        for state in FINISHED:
            due = [at for at in self.expires[state].values() if at <= self.now]
            counts[state] = len(self.finished[state]) - len(due)
        return counts

    def get_events(self, after: str, count: int) -> list[ModelEvent] | None:
        events = self.journal.events
        if after == self._id_before_all():
            return events[: count + 1]
        ids = [event.id for event in events]
        return events[ids.index(after) + 1 :][:count] if after in ids else None

    def get_due_files(self, count: int) -> list[str]:
        return [path for path in ordered(self.sweep) if self.sweep[path] <= self.now][:count]

    def _ids(self, state: str) -> list[str]:
        if state in FINISHED:
            return ordered(self.finished[state])[::-1]
        return [job.id for job in self.of(state)]

    def _read(self, ids: list[str]) -> list[Any]:
        return [read_job(self.jobs[job_id]) for job_id in ids if job_id in self.jobs]

    def _last_event_id(self) -> str:
        return self.journal.events[-1].id if self.journal.events else self._id_before_all()

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
        "result": job.result and msgspec.Raw(job.result.encode()), "reason": job.reason,
        "error": job.error and msgspec.json.decode(job.error, type=JobError),
        "cancel": job.cancel and msgspec.json.decode(job.cancel, type=CancelRequest),
    }  # fmt: skip
