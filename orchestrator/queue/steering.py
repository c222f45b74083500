"""Steering one job."""

import msgspec

from orchestrator.backoff import MAX_DELAY_MS
from orchestrator.job import MAX_PRIORITY, CancelRequest, Job, check_int, clip
from orchestrator.keys import check_job_id, new_token
from orchestrator.queue.reading import Reading

MAX_REASON_BYTES = 512


class Steering(Reading):
    """What is done to one job."""

    async def cancel(self, job_id: str, by: str = "", reason: str = "", *, cancel_children: bool = True) -> Job:
        """Cancel a waiting job at once, or ask a running one to stop (it ends as canceled unless it completes first).

        What is unfinished below it is canceled with it, unless `cancel_children` is False: then it runs on for nobody.
        A large family is told in steps, parents first; should the caller die on the way, the duties go on. Like all of
        these calls it returns the job as the call left it, also one whose record ends with it. Raises `JobNotFound`,
        and `WrongState` when it has finished.
        """
        request = msgspec.json.encode(CancelRequest(clip(by, MAX_REASON_BYTES), clip(reason, MAX_REASON_BYTES)))
        job = await self.scripts.cancel_job(new_token(), check_job_id(job_id), request, whole=cancel_children)
        if cancel_children and job.pending_children is not None:
            while await self.scripts.cancel_descendants(job_id):
                pass
        return job

    async def retry(self, job_id: str) -> Job:
        """Start a new run of a finished job, with fresh attempts. Raises `JobNotFound`, `WrongState`."""
        return await self.scripts.reprocess_job(new_token(), check_job_id(job_id))

    async def remove(self, job_id: str, *, remove_children: bool = True) -> bool:
        """Remove a job that does not run, with its history and files, and with all jobs below it.

        Raises `WrongState` while it, or one below it, runs, and `FlowRefused` with more than 500 jobs below it; then
        nothing is removed. With `remove_children=False` those run on for nobody. A parent waits for it no more.
        """
        return await self.scripts.remove_job(new_token(), check_job_id(job_id), whole=remove_children)

    async def promote(self, job_id: str) -> Job:
        """End a job's delay; its priority stays. Raises `JobNotFound`, `WrongState`."""
        return await self.scripts.promote(new_token(), check_job_id(job_id))

    async def change_priority(self, job_id: str, priority: int) -> Job:
        """Give an unfinished job another priority; a waiting one goes behind its new equals."""
        check_int("priority", priority, 0, MAX_PRIORITY)
        return await self.scripts.change_priority(new_token(), check_job_id(job_id), priority)

    async def change_delay(self, job_id: str, delay_ms: int) -> Job:
        """Give a delayed job another delay, from now. Raises `JobNotFound`, `WrongState`."""
        check_int("delay_ms", delay_ms, 0, MAX_DELAY_MS)
        return await self.scripts.change_delay(new_token(), check_job_id(job_id), delay_ms)
