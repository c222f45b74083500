"""Calls that store jobs."""

from orchestrator.errors import QueueFull
from orchestrator.job import JobState
from orchestrator.scripts import adding
from tests.model.job import FINISHED, ModelJob
from tests.model.state import State

Added = tuple[bool, JobState, int]


class Adding(State):
    """What adds jobs."""

    def add_job(self, token: str, job_id: str, header: bytes, data: bytes) -> Added:
        before = self._added_before(token, job_id)
        if before is None and len(self.journal.outbox) >= adding.OUTBOX_MAX:
            raise QueueFull
        return before or self._store(token, job_id, header, data)

    def fan_out(self, token: str, job_id: str, header: bytes, data: bytes) -> Added:
        return self._added_before(token, job_id) or self._store(token, job_id, header, data)

    def _added_before(self, token: str, job_id: str) -> Added | None:
        job = self.jobs.get(job_id)
        if job is not None:
            if job.token != token and self.memory.answers.get(token) is None:
                self.memory.answer(self.now, token, "duplicated")
                self.tell_queue("duplicated", job=job_id)
            return job.token == token, JobState(job.state), job.created_at
        gone = self.memory.tombstones.get(job_id)
        if gone is not None and gone["token"] == token:
            return True, JobState(gone["state"]), int(gone["created_at"])
        return None

    def _store(self, token: str, job_id: str, header: bytes, data: bytes) -> Added:
        self.open()
        for state in FINISHED:
            if job_id in self.expires[state]:
                self.leave_state(job_id, state)
        job = self.jobs[job_id] = ModelJob(job_id, header + b"\n" + data, self.now, token)
        job.notify = " ".join(job.header.notify) or None
        self.new_sequence(job)
        if job.header.delay_ms:
            self.delay(job, self.now + job.header.delay_ms)
        else:
            self.wait(job)
        if job.header.expires_ms:
            self.deadlines[job_id] = self.now + job.header.expires_ms
        self.journal.added(self.now, job)
        return True, JobState(job.state), self.now
