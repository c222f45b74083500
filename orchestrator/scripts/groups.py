"""Calls about groups and turns."""

from typing import Any

import msgspec

from orchestrator.group import Group, read_group
from orchestrator.job import Job
from orchestrator.replies import read_job
from orchestrator.scripts.call import ScriptCaller


class GroupScripts(ScriptCaller):
    """What is done with groups."""

    async def set_group(self, token: str, gid: str, changes: dict[str, Any]) -> None:
        """Change what is particular to a group; None = as the queue's defaults say."""
        await self._run("set_group", token, gid, msgspec.json.encode(changes))

    async def set_group_defaults(self, token: str, changes: dict[str, int]) -> None:
        """Change what holds of every group; 0 = none."""
        await self._run("set_group_defaults", token, msgspec.json.encode(changes))

    async def get_groups(self, start: int, count: int) -> tuple[int, list[Group]]:
        """How many groups there are, and a page of them."""
        total, groups = await self._run("get_groups", start, count)
        return total, [read_group(group) for group in groups]

    async def get_group(self, gid: str, start: int, count: int) -> tuple[Group, list[Job]]:
        """A group and a page of its waiting jobs."""
        group, jobs = await self._run("get_group", gid, start, count)
        return read_group(group), [read_job(self.keys.queue, job) for job in jobs]

    async def get_position(self, job_id: str) -> list[Any]:
        """What is known of a job's turn; see the script."""
        reply: list[Any] = await self._run("get_position", job_id)
        return reply
