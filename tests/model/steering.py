"""Calls that steer jobs and queues from outside."""

from collections.abc import Callable

from orchestrator.errors import JobNotFound, WrongState
from tests.model.job import FINISHED, ModelJob
from tests.model.journal import json
from tests.model.state import State


class Steering(State):
    """What an operator or a producer changes. Each is answered from memory when it is sent again."""

    def cancel_job(self, token: str, job_id: str, cancel: bytes) -> str:
        def effect() -> str:
            job = self._allowed(job_id, "waiting", "delayed", "active")
            if job.state != "active":
                self.deadlines.pop(job_id, None)
                job.cancel, job.cancel_at = cancel.decode(), self.now
                self.cancel_finished(job, "{}")
            elif job.cancel is None:
                job.cancel, job.cancel_at = cancel.decode(), self.now
                self.tell(job, "canceling", cancel=json(job.cancel))
            return job.state

        return self._once(token, effect)

    def reprocess_job(self, token: str, job_id: str) -> str:
        def effect() -> str:
            job = self._allowed(job_id, *FINISHED)
            if job.files:
                self.sweep[job.files] = self.now
            prev = job.state
            self.leave_state(job_id, prev)
            job.forget_run()
            self.new_sequence(job)
            self.wait(job)
            self.tell(job, "retried", prev=prev, state="waiting")
            return job.state

        return self._once(token, effect)

    def remove_job(self, token: str, job_id: str) -> bool:
        def effect() -> str:
            job = self.jobs.get(job_id)
            if job is None:
                return ""
            self._allowed(job_id, "waiting", "delayed", *FINISHED)
            if job.state in FINISHED:
                self.leave_state(job_id, job.state)
            self.deadlines.pop(job_id, None)
            self.end_record(job)
            self.tell_queue("removed", job=job_id, prev=job.state)
            return "removed"

        return self._once(token, effect) == "removed"

    def promote(self, token: str, job_id: str) -> str:
        def effect() -> str:
            job = self._allowed(job_id, "delayed")
            self.promote_job(job)
            return job.state

        return self._once(token, effect)

    def change_priority(self, token: str, job_id: str, priority: int) -> str:
        def effect() -> str:
            job = self._allowed(job_id, "waiting", "delayed", "active")
            job.priority = priority
            if job.state == "waiting":
                self.new_sequence(job)
                self.wait(job)
            self.tell(job, "priority", priority=priority)
            return job.state

        return self._once(token, effect)

    def pause(self, token: str, *, paused: bool) -> None:
        def effect() -> str:
            if paused == self.limits.paused:
                return "0"
            self.open()
            self.limits.paused = paused
            self.marker = not paused
            self.tell_queue("paused" if paused else "resumed")
            return "1"

        self._once(token, effect)

    def set_limits(
        self,
        token: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, int] | None = None,
        limited_ms: int | None = None,
    ) -> None:
        def effect() -> str:
            self.open()
            if concurrency is not None:
                self.limits.concurrency = concurrency or None
            if rate is not None:
                self.limits.rate = rate if rate[0] else None
            if limited_ms is not None:
                self.limits.limited_until = self.now + limited_ms if limited_ms else None
            self.wake()
            return "OK"

        self._once(token, effect)

    def _once(self, token: str, effect: Callable[[], str]) -> str:
        before = self.memory.answers.get(token)
        return self.memory.answer(self.now, token, effect()) if before is None else before

    def _allowed(self, job_id: str, *states: str) -> ModelJob:
        job = self.jobs.get(job_id)
        if job is None:
            raise JobNotFound
        if job.state not in states:
            raise WrongState
        return job
