"""Parents and children: what a queue's watcher asks of flows, and changes in them."""

from collections.abc import Iterable
from typing import Any

from orchestrator import children
from orchestrator.children import Child, ChildPage, ChildState, DependenciesCount, JobNode
from orchestrator.job import JobError
from orchestrator.keys import check_job_id, new_token
from orchestrator.queue.connection import QueueConnection

__all__ = ["Child", "ChildPage", "ChildState", "Children", "DependenciesCount", "JobNode"]


class Children(QueueConnection):
    """What is asked about a job that waits for others. Every one of these raises `JobNotFound` when it is gone."""

    async def get_children_values(self, job_id: str) -> dict[str, Any]:
        """The results of the completed children, by `<queue>:<id>`.

        A result over 64 KiB stays with its child, and is missing here once that is gone.
        """
        return await children.read_values(self.scripts, job_id)

    async def get_ignored_children_failures(self, job_id: str) -> dict[str, JobError]:
        """Why children failed whose policy is "ignore" or "continue_parent", by `<queue>:<id>`."""
        return await children.read_ignored(self.scripts, job_id)

    async def get_dependencies(
        self,
        job_id: str,
        states: Iterable[ChildState] = tuple(ChildState),
        cursor: str | None = None,
        count: int = children.MAX_PAGE,
    ) -> ChildPage:
        """A page of the children in these states, about `count` of them; go on with its cursor until that is None."""
        return await children.read_page(self.scripts, job_id, states, cursor, count)

    async def get_dependencies_count(self, job_id: str) -> DependenciesCount:
        """How many children have come how far."""
        return await children.count(self.scripts, job_id)

    async def get_flow(self, job_id: str, depth: int = 10, max_children: int = 20) -> JobNode | None:
        """The job and the tree below it, as far as it is kept; None when there is no such job.

        At most `depth` levels, `max_children` of each job, and 500 jobs in all. Each level is read by itself, so a tree
        that changes meanwhile is not that of one instant.
        """
        return await children.read_flow(self.scripts, job_id, depth, max_children)

    async def remove_unprocessed_children(self, job_id: str) -> int:
        """Remove the children that have not ended and do not run, with all below them; returns how many.

        One below which a job runs stays. A parent that waited only for these goes on.
        """
        return await children.remove_unprocessed(self.scripts, job_id)

    async def remove_child_dependency(self, job_id: str) -> bool:
        """Let the job's parent wait for it no more; False when it did not. The job itself goes on."""
        return await self.scripts.remove_child_dependency(new_token(), check_job_id(job_id))
