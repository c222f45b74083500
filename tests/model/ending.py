"""How a run ends, how long a job is kept after it, and how a record goes."""

from typing import Any

import msgspec

from orchestrator.job import Header
from tests.model.job import FINISHED, ModelJob
from tests.model.journal import json
from tests.model.memory import RESULT_MS, TOMBSTONE_MS
from tests.model.state import ordered
from tests.model.storing import Storing

MAX_EVENT_RESULT = 2048
TRIM_AT_ONCE = 10
KEEP_ALL = -1


class Ending(Storing):
    """The ends of jobs."""

    def finish(self, job: ModelJob, state: str, keep: bytes = b"", **fields: Any) -> None:
        """The end of a run, and of the parents above that it ends, too.

        `keep`: the rule of the worker whose attempt it was, for jobs that have none.
        """
        self._end_run(job, state, keep, **fields)
        while settled := self.settle_child(job, self.jobs.get(job.id) is job):
            job, blame = settled
            self._end_run(job, "failed", b"", **self._failed_fields(job, "child", blame, None))

    def _end_run(self, job: ModelJob, state: str, keep: bytes, **fields: Any) -> None:
        job.state, job.finished_at = state, self.now
        self.count(state)
        if state == "failed" and job.reason != "expired":
            self.dead[job.id] = self.now
        is_large = job.result is not None and len(job.result) > MAX_EVENT_RESULT
        if is_large:
            fields["result_bytes"] = len(job.result or "")
        elif job.result is not None:
            fields["result"] = json(job.result)
        age_s, count = keep_rule(job, keep)
        if age_s is not None:
            job.expires_at = self.now + age_s * 1000
            fields["expires_at"] = job.expires_at
        self.tell(job, state, **fields)
        self.free_key(job)
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
            self._trim_to_count(state, count)

    def cancel_finished(self, job: ModelJob, details: str, keep: bytes = b"") -> None:
        job.error = job.reason = job.stack = None
        self.finish(job, "canceled", keep, cancel=json(job.cancel or ""), details=json(details))

    def fail_finished(
        self, job: ModelJob, reason: str, error: str, stack: str | None = None, keep: bytes = b""
    ) -> None:
        self.finish(job, "failed", keep, **self._failed_fields(job, reason, error, stack))

    def end_record(self, job: ModelJob) -> None:
        if job.files:
            self.sweep[job.files] = self.now
        self.memory.bury(job, self.now)
        self.previews.pop(job.id, None)
        del self.jobs[job.id]

    def remove_record(self, job: ModelJob) -> None:
        """The way out for a job that stops without running; a parent that waited for it waits no more."""
        self.take_out(job)
        self.drop_child(job)

    def take_out(self, job: ModelJob) -> None:
        if job.state in FINISHED:
            self.leave_state(job.id, job.state)
        else:
            self.leave_waiting(job)
        self.end_record(job)
        self.tell_queue("removed", job=job.id, prev=job.state)
        self.free_key(job)

    def retry_job(self, job: ModelJob) -> None:
        if job.files:
            self.sweep[job.files] = self.now
        prev = job.state
        self.leave_state(job.id, prev)
        self.untold.pop(job.id, None)
        self.untold_lists.pop(job.id, None)
        job.forget_run()
        self.new_sequence(job)
        if self.waits_for_children(job):
            self.park(job)
        else:
            self.wait(job)
        self.hold_key_again(job)
        self.tell(job, "retried", prev=prev, state=job.state)
        self.await_again(job)

    def trim_rest(self, state: str, limit: int) -> int:
        """The duty's part of keeping only so many; returns how many it looked at."""
        if state not in self.trims:
            return 0
        excess = self._older_than(state, self.trims[state])
        if excess <= limit:
            del self.trims[state]
        self._end_oldest(state, excess, min(excess, limit))
        return min(excess, limit)

    def _failed_fields(self, job: ModelJob, reason: str, error: str, stack: str | None) -> dict[str, Any]:
        job.reason, job.error, job.stack = reason, error, stack
        return {"reason": reason, "error": json(error), "attempts_made": job.made or 0, "attempts": job.header.attempts}

    def _expire_record(self, job: ModelJob, at: int) -> None:
        self.expires[job.state][job.id] = at
        if job.files:
            self.sweep[job.files] = at
        if job.id in self.previews:
            preview, ends_at = self.previews[job.id]
            self.previews[job.id] = preview, min(ends_at, at)
        if at - self.now < TOMBSTONE_MS:
            self.memory.bury(job, at)

    def _trim_to_count(self, state: str, count: int) -> None:
        ended = sum(at <= self.now for at in self.expires[state].values())
        excess = len(self.finished[state]) - ended - count
        if excess <= 0:
            return
        left = self._end_oldest(state, excess, min(excess + ended, TRIM_AT_ONCE))
        if left > 0:
            before = self.trims.get(state)
            if before is None or self._older_than(state, before) < left:
                first = ordered(self.finished[state])[left]
                self.trims[state] = self.finished[state][first], first

    def _end_oldest(self, state: str, excess: int, limit: int) -> int:
        """End the oldest, until `excess` that had not ended by themselves are gone; returns what is left of it."""
        for job_id in ordered(self.finished[state])[:limit]:
            if excess <= 0:
                break
            self.leave_state(job_id, state)
            old = self.jobs.get(job_id)
            if old is None:
                self.tell_queue("removed", job=job_id, prev=state)
                continue
            excess -= 1
            if old.state == state:
                self.end_record(old)
                self.tell_queue("removed", job=job_id, prev=state)
        return excess

    def _older_than(self, state: str, first: tuple[int, str]) -> int:
        score, job_id = first
        place = self.finished[state].get(job_id, score), job_id
        return sum((at, each) < place for each, at in self.finished[state].items())


def keep_rule(job: ModelJob, keep: bytes) -> tuple[int | None, int | None]:
    """For how many seconds, and how many: as the job says, else as the worker says."""
    age_s, count = _kept_by(job.header, job.state)
    if keep and age_s is None and count is None:
        age_s, count = _kept_by(msgspec.json.decode(b'{"n":"x",' + keep[1:], type=Header), job.state)
    return age_s, None if count == KEEP_ALL else count


def _kept_by(rule: Header, state: str) -> tuple[int | None, int | None]:
    if state == "completed":
        return rule.complete_age_s, rule.complete_count
    return rule.fail_age_s, rule.fail_count
