"""What a claim does before and while it takes jobs: recovers stalled ones, moves due ones, heeds the limits."""

from collections.abc import Callable
from typing import Any

from tests.model.choosing import Choosing
from tests.model.job import ModelJob
from tests.model.state import ordered

DUE_AT_ONCE = 32
STALLED_AT_ONCE = 8
TOO_LATE = '{"kind":"expired","message":"the job had not started when its expires_ms ran out"}'
LOST_WORKER = '{"kind":"stalled","message":"the worker was lost more often than max_stalled allows"}'


class Claiming(Choosing):
    """The way from waiting to active, and what time alone moves."""

    def take_next(
        self, token: str, worker: str, lease_ms: int, slots: int, interval_ms: int, wishes: dict[str, Any]
    ) -> tuple[list[ModelJob], int, bool]:
        """The claims, for how many ms a worker may sleep, and whether waking it before is of no use."""
        self.recover_stalled(lease_ms, interval_ms, STALLED_AT_ONCE)
        self.promote_due(DUE_AT_ONCE)
        own = tuple(wishes["limiter"]) if "limiter" in wishes else None
        allowed, limited_ms, is_own_limit = self.limits.allowance(self.now, slots, len(self.of("active")), worker, own)
        claims: list[ModelJob] = []
        more, ready_ms = False, None

        def start(job: ModelJob) -> None:
            self._start(job, f"{token}.{len(claims) + 1}", worker, lease_ms)
            claims.append(job)

        if self.grouped:
            self.settle_held()
        if allowed > 0:
            if "batch" in wishes or "warm" in wishes:
                ready_ms = self.take_by_wish(allowed, wishes, start)
            else:
                more = self._take_in_order(allowed, start)
            self.limits.count_starts(self.now, len(claims), worker, own)
        sleep_ms = self._sleep_ms(more, limited_ms, ready_ms)
        is_for_others = slots == 0 and self.grouped and sleep_ms >= 0
        may_wake = is_own_limit or (
            limited_ms is None and (claims or slots == 0 or self.leaves_wake_up(worker, ready_ms))
        )
        if may_wake and (is_for_others or self._has_startable()):
            self.wake()
        return claims, sleep_ms, is_own_limit

    def _take_in_order(self, count: int, start: Callable[[ModelJob], None]) -> bool:
        """Jobs without a group, then those of the groups by their turns; whether more groups are to be looked at."""
        jobs = self.in_wait()[:count]
        for job in jobs:
            job.waits = False
            start(job)
        for _ in range(count - len(jobs) if self.grouped else 0):
            group, more = self.next_group()
            if group is None:
                return more
            job = self.waiting_of(group.id)[0]
            job.waits = False
            start(job)
        return False

    def _has_startable(self) -> bool:
        return bool(self.in_wait() or (self.grouped and self.places["ring"]))

    def _sleep_ms(self, more: bool, limited_ms: int | None, ready_ms: int | None) -> int:
        if more:
            return 0
        if limited_ms is not None:
            return limited_ms
        ends = [] if ready_ms is None else [ready_ms]
        ends += [max(0, at - self.now) for at in self._next_due()]
        return min(ends, default=-1)

    def _next_due(self) -> list[int]:
        delayed, held = self.of("delayed"), self.places["held"].values() if self.grouped else ()
        return [int(at) for at in ([delayed[0].due_at or 0] if delayed else []) + [*held] if at < 2**53 - 1]

    def _start(self, job: ModelJob, lease: str, worker: str, lease_ms: int) -> None:
        if job.started is None:
            self.deadlines.pop(job.id, None)
        job.state, job.lease, job.worker = "active", lease, worker
        job.started, job.started_at = (job.started or 0) + 1, self.now
        job.progress = job.preview = job.passed_at = None
        job.lease_ends_at = self.now + lease_ms
        self.charge(job)
        self.count("started")
        self.count("wait_ms", max(self.now - job.waits_since, 0))
        self.tell(job, "active", prev="waiting", worker=worker)

    def promote_due(self, limit: int) -> int:
        late = [job_id for job_id in ordered(self.deadlines) if self.deadlines[job_id] <= self.now][:limit]
        for job_id in late:
            job = self.jobs.get(job_id)
            if job is not None and job.finished_at is None:  # else it was the parent of one of these
                self.leave_waiting(job)
                self.fail_finished(job, "expired", TOO_LATE)
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
        self.count("stalled")
        self.tell(job, "stalled", stalled=job.stalled)
        if job.cancel is not None:
            self.cancel_finished(job, '{"stalled":true}')
        elif job.failed_child:
            self.fail_finished(job, "child", job.failed_child)
        elif job.stalled > job.header.max_stalled:
            self.fail_finished(job, "stalled", LOST_WORKER)
        elif not self.wait_for_children(job, "active"):
            self.wait(job)
            self.tell(job, "waiting", prev="active")
        self.wake()
