"""Calls that move or remove many jobs, and the end of a queue."""

from collections.abc import Sequence
from typing import Any

from orchestrator.errors import WrongState
from tests.model.job import FINISHED
from tests.model.journal import Journal
from tests.model.limits import Limits
from tests.model.state import ordered
from tests.model.steering import UNFINISHED, Steering

Pass = tuple[str, str, str]


class Cleaning(Steering):
    """What an operator does to many jobs."""

    def promote_jobs(self, token: str, limit: int) -> int:
        def effect() -> str:
            jobs = self.of("delayed")[:limit]
            for job in jobs:
                self.promote_job(job)
            return str(len(jobs))

        return int(self.once(token, effect))

    def retry_jobs(self, token: str, state: str, limit: int, until_at: str) -> Any:
        def effect() -> Pass:
            until = int(until_at or self.now)
            ids = [job_id for job_id in ordered(self.finished[state]) if self.finished[state][job_id] <= until][:limit]
            retried = 0
            for job_id in ids:
                if job_id in self.jobs:
                    self.retry_job(self.jobs[job_id])
                    retried += 1
                else:
                    self.leave_state(job_id, state)
                    self.tell_queue("removed", job=job_id, prev=state)
            return str(retried), str(len(ids)), str(until)

        return _numbers(self.once(token, effect))

    def drain(self, token: str, state: str, limit: int) -> int:
        def effect() -> str:
            jobs = self.of(state)[:limit]
            for job in jobs:
                self.remove_record(job)
            return str(len(jobs))

        return int(self.once(token, effect))

    def clean(self, token: str, state: str, start: int, limit: int, grace_ms: int, until_at: str) -> Any:
        def effect() -> Pass:
            until = int(until_at or self.now - grace_ms)
            ids = [job.id for job in self.of(state)]
            if state in FINISHED:
                ids = [job_id for job_id in ordered(self.finished[state]) if self.finished[state][job_id] <= until]
            removed = kept = 0
            for job_id in ids[start : start + limit]:
                job = self.jobs.get(job_id)
                if job is None:
                    self.leave_state(job_id, state)
                    self.tell_queue("removed", job=job_id, prev=state)
                elif job.finished_at is not None or job.created_at <= until:
                    self.remove_record(job)
                    removed += 1
                else:
                    kept += 1
            if removed:
                self.tell_queue("cleaned", state=state, count=removed)
            return str(removed), str(kept), str(until)

        return _numbers(self.once(token, effect))

    def trim_events(self, count: int) -> int:
        return self.journal.trim(count)

    def obliterate(self, epoch: str, *, force: bool, limit: int, closing_ms: int) -> int:
        if self.epoch is None or str(self.epoch) != epoch:
            return 0
        if self.of("active") and not force:
            raise WrongState
        if not self.limits.paused:
            self.tell_queue("paused")
        self.limits.paused, self.limits.closing_until, self.marker = True, self.now + closing_ms, False
        removed = 0
        for state in ("waiting-children", "active", "waiting", "delayed", *FINISHED):
            ids = ordered(self.finished[state])[::-1] if state in FINISHED else [job.id for job in self.of(state)]
            for job_id in ids[: limit - removed]:
                self._remove(job_id, state)
                removed += 1
        return removed

    def forget_keys(self, epoch: str, names: Sequence[str]) -> int:
        has_jobs = self.of(*UNFINISHED) or any(self.finished.values())
        if self.epoch is None or str(self.epoch) != epoch or (self.limits.closing_until or 0) <= self.now or has_jobs:
            return -1
        told = self.journal.events[self.journal.trimmed :]
        is_still_told = bool(told) and told[-1].ms >= self.now
        gone = [name for name in names if name != "sweep" and not (name == "events" and is_still_told)]
        for name in gone:
            self._forget(name)
        return len(gone)

    def _remove(self, job_id: str, state: str) -> None:
        job = self.jobs.get(job_id)
        if job is None:
            self.leave_state(job_id, state)
        elif state == "active":
            self.leave_active(job)
            self.end_record(job)
            self.tell_queue("removed", job=job_id, prev=state)
            self.drop_child(job)
        else:
            self.remove_record(job)

    def _forget(self, name: str) -> None:
        """Take away what one key holds."""
        kind, _, rest = name.partition(":")
        memory, counters = self.memory, self.counters
        named: dict[str, dict[str, Any]] = {
            "gone": memory.tombstones.entries, "result": memory.results.entries, "preview": self.previews,
            "answer": memory.lanes.entries if ":" in rest else memory.answers.entries, "dedup": self.dedup,
            "dedup_next": self.dedup_next, "ginfo": self.groups, "grate": self.group_windows,
            "metrics": counters.minutes, "worker": self.worker_records, "rate": self.limits.workers,
            "lingered": memory.lingered.entries,
            "untold": self.untold_lists,
        }  # fmt: skip
        places = {"groups": "ring", "groups:held": "held", "groups:idle": "idle"}
        if name in places:
            self.places[places[name]].clear()
        elif name == "totals:before":
            counters.before.clear()
        elif name in ("events", "outbox"):
            self.journal.begin_anew(name)
        elif name == "meta":
            self._forget_meta()
        elif name == "untold":
            self.untold.clear()
        elif name in ("rate", "marker", "workers"):
            self.limits.window.starts.clear() if name == "rate" else self.workers.clear() if name == "workers" else None
            self.marker = self.marker and name != "marker"
        else:
            del named[kind][rest]

    def _forget_meta(self) -> None:
        window, workers = self.limits.window, self.limits.workers
        self.limits, self.journal.notify = Limits(), Journal().notify
        self.limits.window, self.limits.workers = window, workers
        self.epoch, self.sequence, self.looked_at, self.grace_until = None, 0, None, None
        self.grouped, self.vtime, self.pace = False, None, None
        self.defaults, self.trims = {}, {}
        self.counters.minute, self.counters.are_off = None, False
        self.counters.totals.clear()
        self.journal.forget_newest()


def _numbers(answer: Pass) -> tuple[int, int, str]:
    return int(answer[0]), int(answer[1]), answer[2]
