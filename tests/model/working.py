"""A worker's calls: claiming, telling, ending."""

from collections.abc import Sequence
from typing import Any

import msgspec

from orchestrator.errors import LeaseLost
from orchestrator.job import CancelRequest, JobError
from orchestrator.scripts import Finish, Report
from tests.model.claiming import Claiming
from tests.model.job import ModelJob
from tests.model.journal import json
from tests.model.memory import LANE_MS, LaneCall
from tests.model.state import PREVIEW_MS

MAX_REPORTS = 2000


class Working(Claiming):
    """What a worker does with jobs."""

    def move_to_active(
        self, token: str, lane: str, worker: str, lease_ms: int, interval_ms: int, slots: int
    ) -> dict[str, Any]:
        before = self.memory.lane_call(lane, token, 0)
        if before is not None:
            return self._again(before._replace(outcomes=[]))
        return self._claim(token, lane, worker, lease_ms, interval_ms, slots, [])

    def move_to_finished(
        self,
        token: str,
        lane: str,
        worker: str,
        lease_ms: int,
        interval_ms: int,
        slots: int,
        finishes: Sequence[Finish],
    ) -> dict[str, Any]:
        before = self.memory.lane_call(lane, token, len(finishes))
        if before is not None:
            return self._again(before)
        outcomes = [self._finish(*finish) for finish in finishes]
        if any(outcome != "LEASE_LOST" for outcome in outcomes) and not self.of("waiting", "active"):
            self.tell_queue("drained")
        return self._claim(token, lane, worker, lease_ms, interval_ms, slots, outcomes)

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
        worker: str,
        lease_ms: int,
        interval_ms: int,
        slots: int,
        outcomes: list[str],
    ) -> dict[str, Any]:
        jobs, sleep_ms = self.take_next(token, worker, lease_ms, slots, interval_ms)
        held = [(job.id, job.lease or "") for job in jobs]
        self.memory.lanes.set(lane, LaneCall(token, outcomes, held, sleep_ms), self.now + LANE_MS)
        return {"outcomes": outcomes, "claims": [claim_of(job) for job in jobs], "sleep_ms": sleep_ms}

    def _again(self, call: LaneCall) -> dict[str, Any]:
        jobs = [self._held(*claim) for claim in call.claims]
        return {
            "outcomes": call.outcomes,
            "claims": [claim_of(job) for job in jobs if job is not None],
            "sleep_ms": call.sleep_ms,
        }

    def _finish(self, job_id: str, lease: str, outcome: str, content: bytes, pause_ms: int) -> str:
        job = self._held(job_id, lease)
        if job is None:
            return "LEASE_LOST"
        self.leave_active(job)
        text = content.decode()
        if outcome != "returned":
            job.made = (job.made or 0) + 1
        if outcome == "completed":
            job.result, job.error = text, None
            self.finish(job, "completed", started_at=job.started_at)
        elif job.cancel is not None or outcome == "canceled":
            job.cancel = job.cancel or '{"by":"worker","reason":""}'
            self.cancel_finished(job, text if outcome == "canceled" else "{}")
        elif outcome == "returned":
            self.wait(job)
            self.tell(job, "waiting", prev="active")
        elif pause_ms >= 0 and (job.made or 0) < job.header.attempts:
            self._retry(job, text, pause_ms)
        else:
            kind = msgspec.json.decode(content)["kind"]
            self.fail_finished(job, "timeout" if kind == "timeout" else "error", text)
        return job.state

    def _retry(self, job: ModelJob, error: str, pause_ms: int) -> None:
        job.error = error
        self.new_sequence(job)
        if pause_ms:
            self.delay(job, self.now + pause_ms)
            self.tell(job, "delayed", prev="active", due_at=job.due_at, error=json(error))
        else:
            self.wait(job)
            self.tell(job, "waiting", prev="active", error=json(error))


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
    }  # fmt: skip
