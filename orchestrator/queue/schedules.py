"""Schedules: jobs that are made again and again."""

import asyncio

from orchestrator.errors import JobNotFound
from orchestrator.given import check_kind
from orchestrator.job import check_int
from orchestrator.keys import new_token
from orchestrator.queue.connection import QueueConnection
from orchestrator.queue.reading import MAX_PAGE
from orchestrator.schedule import JobScheduler, JobTemplate, RepeatOptions, check_scheduler_id


class Schedules(QueueConnection):
    """What is done to the schedules of a queue."""

    async def upsert_job_scheduler(
        self, scheduler_id: str, repeat: RepeatOptions, template: JobTemplate | None = None
    ) -> JobScheduler:
        """Make a schedule, or change the one of this id. Safe to call at every start of a program.

        With the timing it has (`every_ms`, `cron`, `tz`, `start_at`) it goes on as it was; a new template, limit or end
        counts from now on. With another timing it begins anew. A job of it that has not started is replaced when the
        template changed, and removed when the timing did. Without a template its jobs are named like it.

        Raises `InvalidOption` before anything is sent, `StoreUnavailable` when Redis is full, and `QueueFull` when an
        add of the job that is to be made `immediately` would be refused.
        """
        check_scheduler_id(scheduler_id)
        check_kind("repeat", repeat, RepeatOptions, or_none=False)
        check_kind("template", template, JobTemplate)
        repeat.check()
        encoded = (template or JobTemplate(scheduler_id)).encode(scheduler_id, self._default_job_options)
        await self._register()
        slots = None
        if repeat.cron is not None:
            now, _ = await self.scripts.get_job_scheduler(scheduler_id)
            slots = await asyncio.to_thread(repeat.slots_after, now)
        made = await self.scripts.upsert_job_scheduler(new_token(), scheduler_id, encoded, repeat, slots)
        if made is None:
            raise JobNotFound(f"schedule {scheduler_id} was removed by another call at once")
        return made

    async def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Remove a schedule, and its last job if that has not started; a running one goes on. Whether there was one."""
        return await self.scripts.remove_job_scheduler(new_token(), check_scheduler_id(scheduler_id))

    async def get_job_scheduler(self, scheduler_id: str) -> JobScheduler | None:
        """The schedule as it is now; None when there is none of this id."""
        _, found = await self.scripts.get_job_scheduler(check_scheduler_id(scheduler_id))
        return found

    async def get_job_schedulers(self, start: int = 0, count: int = 50) -> list[JobScheduler]:
        """A page of the schedules, next first; those without a next slot are the last."""
        check_int("start", start, 0, 2**53)
        check_int("count", count, 1, MAX_PAGE)
        return await self.scripts.get_job_schedulers(start, count)

    async def get_job_schedulers_count(self) -> int:
        """How many schedules there are, finished ones too."""
        key = f"{self.keys.prefix}schedules"
        return int(await self.scripts.retrying("ZCARD", lambda: self.client.zcard(key)))
