"""A worker's calls: claiming, telling, ending."""

from collections.abc import Sequence
from typing import Any

import msgspec

from orchestrator.errors import LeaseLost
from orchestrator.job import CancelRequest, JobError
from orchestrator.scripts import Finish, Report
from orchestrator.scripts.working import PREVIEW_MS
from tests.model.claiming import Claiming
from tests.model.families import PENDING_CHILDREN
from tests.model.job import ModelJob
from tests.model.journal import json
from tests.model.memory import LANE_MS, LaneCall

MAX_REPORTS = 2000
NOT_COUNTED = ("returned", "waiting", "delayed", "rate_limited", "waiting-children")
"""Outcomes that are no attempt."""


class Working(Claiming):
    """What a worker does with jobs."""

    def move_to_active(
        self, token: str, lane: str, worker: str, lease_ms: int, interval_ms: int, slots: int, wishes: bytes = b""
    ) -> dict[str, Any]:
        before = self.memory.lane_call(lane, token, 0)
        if before is not None:
            return self._again(before._replace(outcomes=[]))
        return self._claim(token, lane, [], worker, lease_ms, slots, interval_ms, wishes)

    def move_to_finished(
        self,
        token: str,
        lane: str,
        worker: str,
        lease_ms: int,
        interval_ms: int,
        slots: int,
        finishes: Sequence[Finish],
        wishes: bytes = b"",
        keep: bytes = b"",
    ) -> dict[str, Any]:
        before = self.memory.lane_call(lane, token, len(finishes))
        if before is not None:
            return self._again(before)
        outcomes = [self._finish(*finish, keep) for finish in finishes]
        claims = self._claim(token, lane, outcomes, worker, lease_ms, slots, interval_ms, wishes)
        if any(outcome != "LEASE_LOST" for outcome in outcomes) and not self.of("waiting", "active"):
            self.tell_queue("drained")
        return claims

    def extend_locks(self, lease_ms: int, cancel_ms: int, held: Sequence[tuple[str, str]]) -> list[Any]:
        answers: list[Any] = []
        for job_id, lease in held:
            job = self._held(job_id, lease)
            if job is None or (job.cancel is not None and self.now - (job.cancel_at or 0) > cancel_ms):
                answers.append(False)
            else:
                job.lease_ends_at = self.now + lease_ms
                answers.append(read_cancel(job) or True)
        return answers

    def update_progress(self, job_id: str, lease: str, report: Report) -> Any:
        job = self._held(job_id, lease)
        if job is None:
            raise LeaseLost
        number, name, content, preview = report
        if number > (job.reported or 0):
            job.reported = number
            if preview:
                self.previews[job_id] = preview.decode(), self.now + PREVIEW_MS
            if not name:
                job.progress = content.decode()
            elif preview:
                job.preview = content.decode()
            if name:
                self.tell(job, "milestone", name=name, data=json(content.decode()))
            elif number <= MAX_REPORTS:
                self.tell(job, "progress", progress=json(content.decode()))
        return read_cancel(job)

    def save_checkpoint(self, job_id: str, lease: str, number: int, value: bytes) -> Any:
        job = self._held(job_id, lease)
        if job is None:
            raise LeaseLost
        if number > (job.reported or 0):
            job.reported, job.checkpoint = number, value.decode()
            self.tell(job, "checkpoint", checkpoint=json(job.checkpoint))
        return read_cancel(job)

    def add_log(self, job_id: str, lease: str, number: int, line: str) -> Any:
        job = self._held(job_id, lease)
        if job is None:
            raise LeaseLost
        if number > (job.reported or 0):
            job.reported = number
            keep = job.header.keep_logs
            job.lines = [*job.lines, line][-keep:] if keep else job.lines
        return read_cancel(job)

    def _held(self, job_id: str, lease: str) -> ModelJob | None:
        job = self.jobs.get(job_id)
        return job if job is not None and job.state == "active" and job.lease == lease else None

    def _claim(
        self,
        token: str,
        lane: str,
        outcomes: list[str],
        worker: str,
        lease_ms: int,
        slots: int,
        interval_ms: int,
        wishes: bytes,
    ) -> dict[str, Any]:
        wanted = msgspec.json.decode(wishes) if wishes else {}
        jobs, sleep_ms, is_deaf = self.take_next(token, worker, lease_ms, slots, interval_ms, wanted)
        held = [(job.id, job.lease or "") for job in jobs]
        self.memory.lanes.set(lane, LaneCall(token, outcomes, held, sleep_ms, is_deaf), self.now + LANE_MS)
        return _answer(outcomes, jobs, sleep_ms, is_deaf)

    def _again(self, call: LaneCall) -> dict[str, Any]:
        jobs = [self._held(*claim) for claim in call.claims]
        return _answer(call.outcomes, [job for job in jobs if job is not None], call.sleep_ms, call.is_deaf)

    def _finish(self, job_id: str, lease: str, outcome: str, content: bytes, pause_ms: int, keep: bytes) -> str:
        job = self._held(job_id, lease)
        if job is None:
            return "LEASE_LOST"
        self.leave_active(job)
        if outcome not in NOT_COUNTED:
            job.made = (job.made or 0) + 1
            self.count("run_ms", max(self.now - (job.started_at or 0), 0))
        if outcome == "rate_limited":
            self.limits.limit_starts(self.now, pause_ms)
        outcome, text = self._outcome_of_parent(job, outcome, content.decode())
        if outcome == "completed":
            job.result, job.error, job.stack = text, None, None
            self.finish(job, "completed", keep, started_at=job.started_at)
        elif job.cancel is not None or outcome == "canceled":
            job.cancel = job.cancel or '{"by":"worker","reason":""}'
            self.cancel_finished(job, text if outcome == "canceled" else "{}", keep)
        elif outcome == "child_failed":
            self.fail_finished(job, "child", text, keep=keep)
        elif outcome in NOT_COUNTED:
            self._go_on(job, outcome, pause_ms)
        else:
            self._fail(job, text, pause_ms, keep)
        return job.state

    def _outcome_of_parent(self, job: ModelJob, outcome: str, text: str) -> tuple[str, str]:
        """A parent cannot complete before its children, nor after one that fails it."""
        if job.failed_child and outcome != "canceled":
            return "child_failed", job.failed_child
        if outcome == "completed" and self.waits_for_children(job):
            return "failed", PENDING_CHILDREN
        return outcome, text

    def _go_on(self, job: ModelJob, outcome: str, pause_ms: int) -> None:
        """A step ends, or a worker gives the job back."""
        if outcome == "waiting-children":
            job.continued = None
        if outcome == "delayed":
            job.due_at = self.now + pause_ms
        self._come_again(job, job.due_at)

    def _come_again(self, job: ModelJob, due_at: int | None, **fields: Any) -> None:
        if self.wait_for_children(job, "active", **fields):
            return
        if due_at is not None:
            self.delay(job, due_at)
            self.tell(job, "delayed", prev="active", due_at=due_at, **fields)
        else:
            self.wait(job)
            self.tell(job, "waiting", prev="active", **fields)

    def _fail(self, job: ModelJob, text: str, pause_ms: int, keep: bytes) -> None:
        error, newline, rest = text.partition("\n")
        stack = rest if newline else None
        if pause_ms < 0 or (job.made or 0) >= job.header.attempts:
            reason = "timeout" if msgspec.json.decode(error)["kind"] == "timeout" else "error"
            self.fail_finished(job, reason, error, stack, keep)
            return
        job.error, job.stack = error, stack
        self.count("retried")
        self.new_sequence(job)
        job.due_at = self.now + pause_ms if pause_ms else None
        self._come_again(job, job.due_at, error=json(error))


def _answer(outcomes: list[str], jobs: list[ModelJob], sleep_ms: int, is_deaf: bool) -> dict[str, Any]:
    claims = [claim_of(job) for job in jobs]
    return {"outcomes": outcomes, "claims": claims, "sleep_ms": sleep_ms, "is_deaf": is_deaf}


def read_cancel(job: ModelJob) -> CancelRequest | None:
    """The request to stop, if there is one."""
    return None if job.cancel is None else msgspec.json.decode(job.cancel, type=CancelRequest)


def claim_of(job: ModelJob) -> dict[str, Any]:
    """What a worker is told of the job it gets."""
    return {
        "id": job.id, "data": msgspec.Raw(job.data), "created_at": job.created_at, "lease": job.lease, "run": job.run,
        "attempts_started": job.started, "attempts_made": job.made or 0, "stalled": job.stalled or 0,
        "priority": job.current_priority, "started_at": job.started_at,
        "cancel": read_cancel(job), "error": job.error and msgspec.json.decode(job.error, type=JobError),
        "checkpoint": job.checkpoint and json(job.checkpoint),
    }  # fmt: skip
