"""Calls of flows: trees of jobs, and what a parent knows of its children."""

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.job import Job
from orchestrator.replies import read_added, read_job
from orchestrator.scripts.adding import OUTBOX_MAX
from orchestrator.scripts.call import ScriptCaller


class FlowEntry(NamedTuple):
    """A job of a flow as `add_flow` takes it. `parent`: its parent's place in the call, from 1; 0 = a root."""

    queue: str
    job_id: str
    parent: int
    header: bytes
    data: bytes


class FlowScripts(ScriptCaller):
    """What adds flows, and what their parents ask."""

    async def add_flow(self, token: str, entries: Sequence[FlowEntry]) -> list[tuple[bool, int]]:
        """For each flow: whether this call made it, and when its root was created (ms)."""
        parts = [part for entry in entries for part in entry]
        replies = await self._run_adding("add_flow", token, OUTBOX_MAX, *parts)
        return [(added.is_new, added.created_at) for added in map(read_added, replies)]

    async def get_dependencies(
        self, job_id: str, cursor: str, count: int, kinds: str
    ) -> tuple[str, list[tuple[str, bytes]]]:
        """A page of children, as (`<queue>:<id>`, kind and content), and the cursor of the next; "0" = no more."""
        next_cursor, flat = await self._run("get_dependencies", job_id, cursor, count, kinds)
        return next_cursor.decode(), [(name.decode(), text) for name, text in zip(flat[::2], flat[1::2], strict=True)]

    async def get_children(
        self, start: int, count: int, parents: Sequence[tuple[str, str]]
    ) -> list[tuple[int, list[Job]]]:
        """For each (queue, id): how many children its page has, and those that are still there."""
        names = [name for parent in parents for name in parent]
        replies = await self._run("get_children", start, count, *names)
        return [
            (looked, [read_job(queue.decode(), job) for queue, job in zip(flat[::2], flat[1::2], strict=True)])
            for looked, *flat in replies
        ]

    async def get_dependencies_count(self, job_id: str) -> tuple[int, int, int, int]:
        """How many children are pending, completed, failed, and failed without harm."""
        pending, completed, failed, ignored = await self._run("get_dependencies_count", job_id)
        return pending, completed, failed, ignored

    async def remove_unprocessed_children(self, token: str, job_id: str) -> tuple[int, bool]:
        """How many children were removed, and whether there may be more."""
        removed, more = await self._run("remove_unprocessed_children", token, job_id)
        return int(removed), more == b"1"

    async def remove_child_dependency(self, token: str, job_id: str) -> bool:
        """Whether a parent waited for the job."""
        return bool(await self._run("remove_child_dependency", token, job_id) == b"1")
