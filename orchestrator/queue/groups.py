"""Steering groups: shares, limits, pauses; and why a job waits."""

import asyncio
from typing import Any

from orchestrator.errors import JobNotFound
from orchestrator.group import (
    MAX_CONCURRENCY,
    MAX_WAITING,
    MAX_WINDOW_MS,
    Group,
    RateLimit,
    WhyWaiting,
    read_why,
)
from orchestrator.job import Job, check_bool, check_int, check_number
from orchestrator.keys import check_group_id, check_job_id, new_token
from orchestrator.queue.reading import MAX_PAGE, Reading

MAX_AGEING_MS = 4_000_000_000
WHY_EVERY_S = 1.0


class Groups(Reading):
    """What is done with groups of jobs.

    Source: BullMQ Pro's groups; shares by weight and cost are ours.
    """

    async def set_group_weight(self, group: str, weight: float) -> None:
        """Give a group `weight` times the share of a group of weight 1. 0.01 to 1,000."""
        check_number("weight", weight, 0.01, 1000)
        await self._set_group(group, weight=weight)

    async def set_group_concurrency(self, group: str, concurrency: int | None) -> None:
        """At most so many jobs of the group run at once; 0 = no limit, None = the queue's default for groups."""
        if concurrency is not None:
            check_int("concurrency", concurrency, 0, MAX_CONCURRENCY)
        await self._set_group(group, concurrency=concurrency)

    async def set_group_rate_limit(self, group: str, limit: RateLimit | None) -> None:
        """At most so many starts of the group in any window; None = the queue's default for groups."""
        if limit is not None:
            limit.check("limit")
        await self._set_group(group, rate_max=limit and limit.max_starts, rate_ms=limit and limit.duration_ms)

    async def set_group_max_waiting(self, group: str, max_waiting: int | None) -> None:
        """Adds above so many waiting jobs of the group are refused; 0 = no limit, None = the queue's default."""
        if max_waiting is not None:
            check_int("max_waiting", max_waiting, 0, MAX_WAITING)
        await self._set_group(group, max_waiting=max_waiting)

    async def rate_limit_group(self, group: str, duration_ms: int) -> None:
        """Nothing of the group starts for so long; others go on. 0 lifts it."""
        check_int("duration_ms", duration_ms, 0, MAX_WINDOW_MS)
        await self._set_group(group, limited_ms=duration_ms)

    async def pause_group(self, group: str) -> None:
        """Let no more jobs of the group start; running ones go on, as do other groups."""
        await self._set_group(group, paused=True)

    async def resume_group(self, group: str) -> None:
        """Let jobs of the group start again."""
        await self._set_group(group, paused=False)

    async def set_group_defaults(
        self,
        *,
        concurrency: int | None = None,
        rate_limit: RateLimit | None = None,
        max_waiting: int | None = None,
        ageing_ms: int | None = None,
        fair_ungrouped: bool | None = None,
    ) -> None:
        """Say what holds of every group that says nothing else. None changes nothing, 0 lifts.

        rate_limit: lifted by `clear_group_rate_limit`.
        ageing_ms: each so many ms of waiting are worth one step of priority inside a group, so that nothing starves.
            A group takes it up when it next has no waiting jobs; there LIFO then counts only within a millisecond.
        fair_ungrouped: jobs without a group share as one group of the ring, instead of coming before all groups.
        """
        changes: dict[str, int] = {}
        if concurrency is not None:
            check_int("concurrency", concurrency, 0, MAX_CONCURRENCY)
            changes["group_concurrency"] = concurrency
        if rate_limit is not None:
            rate_limit.check("rate_limit")
            changes |= {"group_rate_max": rate_limit.max_starts, "group_rate_ms": rate_limit.duration_ms}
        if max_waiting is not None:
            check_int("max_waiting", max_waiting, 0, MAX_WAITING)
            changes["group_max_waiting"] = max_waiting
        if ageing_ms is not None:
            check_int("ageing_ms", ageing_ms, 0, MAX_AGEING_MS)
            changes["ageing_ms"] = ageing_ms
        if fair_ungrouped is not None:
            check_bool("fair_ungrouped", fair_ungrouped)
            changes["fair_ungrouped"] = int(fair_ungrouped)
        await self.scripts.set_group_defaults(new_token(), changes)

    async def clear_group_rate_limit(self) -> None:
        """Lift the default rate limit of groups."""
        await self.scripts.set_group_defaults(new_token(), {"group_rate_max": 0, "group_rate_ms": 0})

    async def get_groups(self, start: int = 0, count: int = 50) -> list[Group]:
        """A page of the groups: those whose turn comes first, then the held ones, then idle ones."""
        check_int("start", start, 0, 2**53)
        check_int("count", count, 1, MAX_PAGE)
        return (await self.scripts.get_groups(start, count))[1]

    async def get_groups_count(self) -> int:
        """How many groups are known: with jobs, with settings of their own, or idle for less than an hour."""
        return (await self.scripts.get_groups(0, 0))[0]

    async def get_group(self, group: str) -> Group:
        """The group as it is now; one that was never used is idle."""
        return (await self.scripts.get_group(check_group_id(group), 0, 0))[0]

    async def get_group_jobs(self, group: str, start: int = 0, count: int = 50) -> list[Job]:
        """A page of the group's waiting jobs, next first."""
        check_int("start", start, 0, 2**53)
        check_int("count", count, 1, MAX_PAGE)
        return (await self.scripts.get_group(check_group_id(group), start, count))[1]

    async def why_waiting(self, job_id: str) -> WhyWaiting:
        """Why a job has not started, how many come before it, and about when it starts. Raises `JobNotFound`.

        Asked more than once a second about a job, it answers what it knew.
        """
        now_s = asyncio.get_running_loop().time()
        asked_s, known = self._whys.get(check_job_id(job_id), (-WHY_EVERY_S, None))
        if known is not None and now_s - asked_s < WHY_EVERY_S:
            return known
        _, workers = await self.scripts.get_workers(0, 0)
        found = read_why(await self.scripts.get_position(job_id), workers)
        if found is None:
            raise JobNotFound(f"there is no job {job_id}")
        self._whys = {key: value for key, value in self._whys.items() if now_s - value[0] < WHY_EVERY_S}
        self._whys[job_id] = (now_s, found)
        return found

    async def _set_group(self, group: str, **changes: Any) -> None:
        await self.scripts.set_group(new_token(), check_group_id(group), changes)
