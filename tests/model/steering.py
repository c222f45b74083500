"""Calls that steer jobs and queues from outside."""

from collections.abc import Callable
from typing import Any

from orchestrator.errors import JobNotFound, WrongState
from tests.model.job import FINISHED, ModelJob
from tests.model.memory import GoneJob
from tests.model.reading import read_job
from tests.model.untold import TOLD_AT_ONCE, Untold

WAITING = ("waiting", "delayed", "waiting-children")
UNFINISHED = (*WAITING, "active")
KEPT = "kept"
"""Remembered of a call that answered a job which is still there."""


class Steering(Untold):
    """What an operator or a producer changes. Each is answered from memory when it is sent again."""

    def cancel_job(self, token: str, job_id: str, cancel: bytes, *, whole: bool = True) -> Any:
        before = self.memory.answers.get(token)
        if before is not None:
            return self._answer_again(before, job_id)
        job = self._allowed(job_id, *UNFINISHED)
        if whole and job.family:
            self.list_children(job_id, job)
            self.untold[job_id] = cancel.decode()
        self.cancel_one(job, cancel.decode())
        gone = GoneJob(job, read_job(job))
        if whole:
            self.tell_untold(job_id, TOLD_AT_ONCE)
        return self._answer_job(token, job, gone)

    def reprocess_job(self, token: str, job_id: str) -> Any:
        def effect() -> ModelJob:
            job = self._allowed(job_id, *FINISHED)
            self.retry_job(job)
            return job

        return self._job_once(token, job_id, effect)

    def remove_job(self, token: str, job_id: str, *, whole: bool = True) -> bool:
        def effect() -> str:
            if job_id not in self.jobs:
                return ""
            job = self._allowed(job_id, *WAITING, *FINISHED)
            family = self.descendants(job) if whole else []
            if any(member.state == "active" for member in family):
                raise WrongState
            for member in family:
                self.take_out(member)
            self.remove_record(job)
            return "removed"

        return bool(self.once(token, effect) == "removed")

    def promote(self, token: str, job_id: str) -> Any:
        def effect() -> ModelJob:
            job = self._allowed(job_id, "delayed")
            self.promote_job(job)
            return job

        return self._job_once(token, job_id, effect)

    def change_priority(self, token: str, job_id: str, priority: int) -> Any:
        def effect() -> ModelJob:
            job = self._allowed(job_id, *UNFINISHED)
            if job.state == "waiting":
                self.leave_wait(job)
                job.priority = priority
                self.new_sequence(job)
                self.wait(job)
            job.priority = priority
            self.tell(job, "priority", priority=priority)
            return job

        return self._job_once(token, job_id, effect)

    def change_delay(self, token: str, job_id: str, delay_ms: int) -> Any:
        def effect() -> ModelJob:
            job = self._allowed(job_id, "delayed")
            self.new_sequence(job)
            self.delay(job, self.now + delay_ms)
            self.tell(job, "delayed", prev="delayed", due_at=job.due_at)
            return job

        return self._job_once(token, job_id, effect)

    def pause(self, token: str, *, paused: bool) -> None:
        def effect() -> str:
            if paused == self.limits.paused:
                return "0"
            self.open()
            self.limits.paused = paused
            self.marker = not paused
            self.tell_queue("paused" if paused else "resumed")
            return "1"

        self.once(token, effect)

    def set_limits(
        self,
        token: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, int] | None = None,
        limited_ms: int | None = None,
        max_waiting: int | None = None,
    ) -> None:
        def effect() -> str:
            self.open()
            if concurrency is not None:
                self.limits.concurrency = concurrency or None
            if rate is not None:
                self.limits.rate = rate if rate[0] else None
            if limited_ms is not None:
                self.limits.limited_until = self.now + limited_ms if limited_ms else None
            if max_waiting is not None:
                self.limits.max_waiting = max_waiting or None
            self.wake()
            return "OK"

        self.once(token, effect)

    def once(self, token: str, effect: Callable[[], Any]) -> Any:
        """What a call does the first time it comes; its answer is remembered."""
        before = self.memory.answers.get(token)
        return self.memory.answer(self.now, token, effect()) if before is None else before

    def _job_once(self, token: str, job_id: str, effect: Callable[[], ModelJob]) -> Any:
        """The same for a call that answers a job, which is remembered only where it is gone."""
        before = self.memory.answers.get(token)
        if before is not None:
            return self._answer_again(before, job_id)
        job = effect()
        return self._answer_job(token, job, GoneJob(job, read_job(job)))

    def _answer_job(self, token: str, job: ModelJob, gone: GoneJob) -> Any:
        """The job as it is, or where it is gone as it was then."""
        is_kept = self.jobs.get(job.id) is job
        self.memory.answer(self.now, token, KEPT if is_kept else gone)
        return read_job(job) if is_kept else gone.reply

    def _answer_again(self, before: Any, job_id: str) -> Any:
        return before.reply if isinstance(before, GoneJob) else read_job(self._allowed(job_id, *UNFINISHED, *FINISHED))

    def _allowed(self, job_id: str, *states: str) -> ModelJob:
        job = self.jobs.get(job_id)
        if job is None:
            raise JobNotFound
        if job.state not in states:
            raise WrongState
        return job
