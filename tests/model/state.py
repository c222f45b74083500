"""What a queue holds, and the steps that several calls share: queueing, starting, ending, keeping."""

from typing import Any

from tests.model.job import FINISHED, MIDDLE, ModelJob
from tests.model.journal import Journal, json
from tests.model.limits import Limits
from tests.model.memory import RESULT_MS, TOMBSTONE_MS, Memory

MAX_EVENT_RESULT = 2048
TRIM_AT_ONCE = 10
PREVIEW_MS = 600_000


class State:
    """Jobs by id, and the indexes over them. `now` is the clock; nothing else tells the time."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.jobs: dict[str, ModelJob] = {}
        self.sequence = 0
        self.epoch: int | None = None
        self.marker = False
        self.looked_at: int | None = None
        self.grace_until: int | None = None
        self.deadlines: dict[str, int] = {}
        self.finished: dict[str, dict[str, int]] = {state: {} for state in FINISHED}
        self.expires: dict[str, dict[str, int]] = {state: {} for state in FINISHED}
        self.dead: dict[str, int] = {}
        self.sweep: dict[str, int] = {}
        self.previews: dict[str, tuple[str, int]] = {}
        self.limits = Limits()
        self.memory = Memory()
        self.journal = Journal()

    def set_clock(self, now: int) -> None:
        """Time passes, or is set back; what has ended is gone."""
        self.now = now
        self.memory.end_before(now)
        self.limits.end_before(now)
        self.previews = {name: entry for name, entry in self.previews.items() if entry[1] >= now}
        ended = [job.id for job in self.jobs.values() if job.expires_at is not None and job.expires_at < now]
        for job_id in ended:
            del self.jobs[job_id]

    def of(self, *states: str) -> list[ModelJob]:
        """The jobs of some states, each state's in its order."""
        found: list[ModelJob] = []
        for state in states:
            jobs = [job for job in self.jobs.values() if job.state == state]
            found += sorted(jobs, key=_ORDER[state])
        return found

    def open(self) -> None:
        if self.epoch is None:
            self.epoch = self.now

    # ── into the queue ───────────────────────────────────────────────────────────────────────────────

    def new_sequence(self, job: ModelJob) -> None:
        self.sequence += 1
        job.sequence = MIDDLE - self.sequence if job.header.lifo else MIDDLE + self.sequence

    def wake(self) -> None:
        if not self.limits.paused:
            self.marker = True

    def wait(self, job: ModelJob) -> None:
        job.state, job.due_at = "waiting", None
        self.wake()

    def delay(self, job: ModelJob, due_at: int) -> None:
        job.state, job.due_at = "delayed", due_at
        if self.of("delayed")[0] is job:
            self.wake()

    def promote_job(self, job: ModelJob) -> None:
        self.new_sequence(job)
        self.wait(job)
        self.tell(job, "waiting", prev="delayed")

    # ── out of it ────────────────────────────────────────────────────────────────────────────────────

    def leave_active(self, job: ModelJob) -> None:
        job.reported = job.told_at = None

    def finish(self, job: ModelJob, state: str, **fields: Any) -> None:
        job.state, job.finished_at = state, self.now
        if state == "failed" and job.reason != "expired":
            self.dead[job.id] = self.now
        is_large = job.result is not None and len(job.result) > MAX_EVENT_RESULT
        if is_large:
            fields["result_bytes"] = len(job.result or "")
        elif job.result is not None:
            fields["result"] = json(job.result)
        header = job.header
        age_s, count = header.fail_age_s, header.fail_count
        if state == "completed":
            age_s, count = header.complete_age_s, header.complete_count
        if age_s is not None:
            job.expires_at = self.now + age_s * 1000
            fields["expires_at"] = job.expires_at
        self.tell(job, state, **fields)
        if count == 0 or age_s == 0:
            self.dead.pop(job.id, None)
            self.end_record(job)
            if is_large:
                self.memory.results.set(job.id, job.result or "", self.now + RESULT_MS)
            return
        self.finished[state][job.id] = self.now
        if job.expires_at is not None:
            self._expire_record(job, job.expires_at)
        if count is not None:
            self._trim(state, count)

    def cancel_finished(self, job: ModelJob, details: str) -> None:
        job.error = job.reason = None
        self.finish(job, "canceled", cancel=json(job.cancel or ""), details=json(details))

    def fail_finished(self, job: ModelJob, reason: str, error: str) -> None:
        job.reason, job.error = reason, error
        self.finish(job, "failed", reason=reason, error=json(error))

    def end_record(self, job: ModelJob) -> None:
        if job.files:
            self.sweep[job.files] = self.now
        self.memory.bury(job, self.now)
        self.previews.pop(job.id, None)
        del self.jobs[job.id]

    def leave_state(self, job_id: str, state: str) -> None:
        self.finished[state].pop(job_id, None)
        self.expires[state].pop(job_id, None)
        if state == "failed":
            self.dead.pop(job_id, None)

    def _expire_record(self, job: ModelJob, at: int) -> None:
        self.expires[job.state][job.id] = at
        if job.files:
            self.sweep[job.files] = at
        if job.id in self.previews:
            preview, ends_at = self.previews[job.id]
            self.previews[job.id] = preview, min(ends_at, at)
        if at - self.now < TOMBSTONE_MS:
            self.memory.bury(job, at)

    def _trim(self, state: str, count: int) -> None:
        excess = len(self.finished[state]) - count
        for job_id in ordered(self.finished[state])[: max(0, min(excess, TRIM_AT_ONCE))]:
            self.leave_state(job_id, state)
            old = self.jobs.get(job_id)
            if old is None or old.state == state:
                if old is not None:
                    self.end_record(old)
                self.tell_queue("removed", job=job_id, prev=state)

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────

    def tell(self, job: ModelJob, kind: str, **fields: Any) -> None:
        self.journal.job_event(self.now, job, kind, **fields)

    def tell_queue(self, kind: str, **fields: Any) -> None:
        self.journal.queue_event(self.now, kind, **fields)


def ordered(scores: dict[str, int]) -> list[str]:
    """The members of a sorted set in its order."""
    return sorted(scores, key=lambda member: (scores[member], member))


_ORDER: dict[str, Any] = {
    "waiting": lambda job: (job.current_priority, job.member),
    "delayed": lambda job: (job.due_at, job.member),
    "active": lambda job: (job.lease_ends_at, job.id),
    **dict.fromkeys(FINISHED, lambda job: (job.finished_at, job.id)),
}
