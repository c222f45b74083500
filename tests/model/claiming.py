"""What a claim does before and while it takes jobs: recovers stalled ones, moves due ones, heeds the limits."""

from tests.model.job import ModelJob
from tests.model.state import State, ordered

DUE_AT_ONCE = 32
STALLED_AT_ONCE = 8
TOO_LATE = '{"kind":"expired","message":"the job had not started when its expires_ms ran out"}'
LOST_WORKER = '{"kind":"stalled","message":"the worker was lost more often than max_stalled allows"}'


class Claiming(State):
    """The way from waiting to active, and what time alone moves."""

    def take_next(
        self, token: str, worker: str, lease_ms: int, slots: int, interval_ms: int
    ) -> tuple[list[ModelJob], int]:
        self.recover_stalled(lease_ms, interval_ms, STALLED_AT_ONCE)
        self.promote_due(DUE_AT_ONCE)
        allowed, limited_ms = self.limits.allowance(self.now, slots, len(self.of("active")))
        claims = self.of("waiting")[:allowed]
        for number, job in enumerate(claims, 1):
            self._start(job, f"{token}.{number}", worker, lease_ms)
        self.limits.count_starts(self.now, len(claims))
        if (claims or slots == 0) and limited_ms is None and self.of("waiting"):
            self.wake()
        if limited_ms is not None:
            return claims, limited_ms
        delayed = self.of("delayed")
        return claims, max(0, (delayed[0].due_at or 0) - self.now) if delayed else -1

    def _start(self, job: ModelJob, lease: str, worker: str, lease_ms: int) -> None:
        if job.started is None:
            self.deadlines.pop(job.id, None)
        job.state, job.lease, job.worker = "active", lease, worker
        job.started, job.started_at = (job.started or 0) + 1, self.now
        job.progress = job.preview = None
        job.lease_ends_at = self.now + lease_ms
        self.tell(job, "active", prev="waiting", worker=worker)

    def promote_due(self, limit: int) -> int:
        late = [job_id for job_id in ordered(self.deadlines) if self.deadlines[job_id] <= self.now][:limit]
        for job_id in late:
            del self.deadlines[job_id]
            self.fail_finished(self.jobs[job_id], "expired", TOO_LATE)
        due = [job for job in self.of("delayed") if (job.due_at or 0) <= self.now][:limit]
        for job in due:
            self.promote_job(job)
        return len(late) + len(due)

    def recover_stalled(self, lease_ms: int, interval_ms: int, limit: int) -> int:
        if self._is_grace(lease_ms, interval_ms):
            return 0
        stalled = [job for job in self.of("active") if job.lease_ends_at <= self.now][:limit]
        for job in stalled:
            self._recover(job)
        return len(stalled)

    def _is_grace(self, lease_ms: int, interval_ms: int) -> bool:
        looked_at = self.looked_at or 0
        if looked_at > 0 and self.now - looked_at > max(lease_ms / 4, 3 * interval_ms):
            self.grace_until = self.now + lease_ms
        if abs(self.now - looked_at) >= interval_ms / 2:
            self.looked_at = self.now
        left = (self.grace_until or 0) - self.now
        if left > lease_ms:
            self.grace_until = self.now + lease_ms
        return left > 0

    def _recover(self, job: ModelJob) -> None:
        self.leave_active(job)
        job.stalled = (job.stalled or 0) + 1
        self.tell(job, "stalled", stalled=job.stalled)
        if job.cancel is not None:
            self.cancel_finished(job, '{"stalled":true}')
        elif job.stalled > job.header.max_stalled:
            self.fail_finished(job, "stalled", LOST_WORKER)
        else:
            self.wait(job)
            self.tell(job, "waiting", prev="active")
        self.wake()
