"""What a parent knows of its children: read in pages, whoever asks."""

from collections.abc import AsyncIterator, Iterable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from orchestrator.errors import InvalidOption, WaitingChildrenError
from orchestrator.job import Job, JobError, check_int
from orchestrator.keys import Keys, check_job_id, new_token
from orchestrator.scripts import Scripts

MAX_PAGE = 100
MAX_DEPTH = 20
MAX_JOBS = 500
MAX_READ = 200  # 300 were seen to take 6 ms, and no script may take over 5
_START = "0"


class ChildState(StrEnum):
    """What became of a child, in the eyes of its parent."""

    UNPROCESSED = "unprocessed"
    PROCESSED = "processed"
    FAILED = "failed"
    IGNORED = "ignored"


_KINDS = {
    ChildState.UNPROCESSED: "p",
    ChildState.PROCESSED: "c",
    ChildState.FAILED: "f",
    ChildState.IGNORED: "i",
}
_STATES = {ord(kind): state for state, kind in _KINDS.items()}


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A child as its parent knows it.

    result: of a processed one; None when it is over 64 KiB: then it is read of the child itself, while that is kept.
    error: why a failed one failed or was canceled; of an ignored one, its policy was to be no trouble to its parent.
    """

    queue: str
    id: str
    state: ChildState
    result: msgspec.Raw | None = None
    error: JobError | None = None


class ChildPage(NamedTuple):
    """Children, in no order, and the cursor of the next page; None = no more."""

    children: list[Child]
    cursor: str | None


class DependenciesCount(NamedTuple):
    """How many children have come how far."""

    unprocessed: int
    processed: int
    failed: int
    ignored: int


class JobNode(NamedTuple):
    """A job of a flow, and the jobs below it."""

    job: Job
    children: "list[JobNode]"


async def read_page(
    scripts: Scripts, job_id: str, states: Iterable[ChildState], cursor: str | None, count: int
) -> ChildPage:
    """A page of a job's children that are in one of the states. Raises `JobNotFound`.

    count: about how many; a small family comes whole, and where few are in these states a page may be short.
    """
    wanted = list(states)
    if isinstance(states, str) or not set(wanted) <= set(ChildState):
        raise InvalidOption("states", f"must be a list of {', '.join(ChildState)}")
    if cursor is not None and not (isinstance(cursor, str) and cursor.isascii() and cursor.isdigit()):
        raise InvalidOption("cursor", "must be the cursor of an earlier page")
    check_int("count", count, 1, MAX_PAGE)
    kinds = "".join(_KINDS[ChildState(state)] for state in wanted)
    next_cursor, found = await scripts.get_dependencies(check_job_id(job_id), cursor or _START, count, kinds)
    children = [_child(name, text) for name, text in found]
    return ChildPage(children, None if next_cursor == _START else next_cursor)


async def read_all(scripts: Scripts, job_id: str, *states: ChildState) -> AsyncIterator[Child]:
    """All children in these states; one that changes meanwhile may come twice, the newer one last."""
    cursor: str | None = _START
    while cursor is not None:
        page = await read_page(scripts, job_id, states, cursor, MAX_PAGE)
        cursor = page.cursor
        for child in page.children:
            yield child


async def read_values(scripts: Scripts, job_id: str) -> dict[str, Any]:
    """The results of the completed children, by `<queue>:<id>`."""
    values = {}
    async for child in read_all(scripts, job_id, ChildState.PROCESSED):
        result = child.result or await _read_result(scripts, child)
        if result is not None:
            values[f"{child.queue}:{child.id}"] = msgspec.json.decode(result)
    return values


async def _read_result(scripts: Scripts, child: Child) -> msgspec.Raw | None:
    job = await read_job(scripts, child.queue, child.id)
    return None if job is None else job.result


async def read_ignored(scripts: Scripts, job_id: str) -> dict[str, JobError]:
    """Why children failed that were not to be in their parent's way, by `<queue>:<id>`."""
    found = {}
    async for child in read_all(scripts, job_id, ChildState.IGNORED):
        if child.error is not None:
            found[f"{child.queue}:{child.id}"] = child.error
    return found


async def count(scripts: Scripts, job_id: str) -> DependenciesCount:
    """How many children have come how far. Raises `JobNotFound`."""
    return DependenciesCount(*await scripts.get_dependencies_count(check_job_id(job_id)))


async def remove_unprocessed(scripts: Scripts, job_id: str) -> int:
    """Remove the children that have not ended and, like all below them, do not run; returns how many."""
    removed = 0
    more = True
    while more:
        now_removed, more = await scripts.remove_unprocessed_children(new_token(), check_job_id(job_id))
        removed += now_removed
    return removed


async def read_job(scripts: Scripts, queue: str, job_id: str) -> Job | None:
    """A job of this queue or another one on the same server."""
    found = await in_queue(scripts, queue).get_job(job_id, history=False)
    return None if found is None else found[0]


def in_queue(scripts: Scripts, queue: str) -> Scripts:
    """The same calls for another queue."""
    if queue == scripts.keys.queue:
        return scripts
    return Scripts(scripts.client, Keys(queue), scripts.deadline_s)


async def read_flow(scripts: Scripts, job_id: str, depth: int, max_children: int) -> JobNode | None:
    """The tree below a job, level by level: at most so many levels, children of a job, and 500 jobs in all."""
    check_int("depth", depth, 1, MAX_DEPTH)
    check_int("max_children", max_children, 1, MAX_JOBS)
    root = await read_job(scripts, scripts.keys.queue, check_job_id(job_id))
    if root is None:
        return None
    tree = JobNode(root, [])
    level, size = [tree], 1
    for _ in range(depth - 1):
        below: list[JobNode] = []
        for node, found in zip(level, await _children_of(scripts, level, max_children), strict=True):
            room = min(max_children, MAX_JOBS - size - len(below))
            node.children.extend(JobNode(job, []) for job in found[:room])
            below.extend(node.children)
        level, size = below, size + len(below)
    return tree


async def _children_of(scripts: Scripts, nodes: list[JobNode], most: int) -> list[list[Job]]:
    """The children of each that are still there, oldest first; of a larger family some `most` of them."""
    found: list[list[Job]] = [[] for _ in nodes]
    page = min(most, MAX_READ)
    parents = [place for place, node in enumerate(nodes) if node.job.pending_children is not None]  # others had none
    for first in range(0, len(parents), MAX_READ // page):
        start, places = 0, parents[first : first + MAX_READ // page]
        while places:
            asked = [(nodes[place].job.queue, nodes[place].job.id) for place in places]
            replies = list(zip(places, await scripts.get_children(start, page, asked), strict=True))
            for place, (_, jobs) in replies:
                found[place] += jobs
            places = [place for place, (looked, _) in replies if looked == page and len(found[place]) < most]
            start += page
    return [sorted(jobs, key=lambda job: (job.created_at, job.id)) for jobs in found]


def _child(name: str, text: bytes) -> Child:
    queue, _, job_id = name.partition(":")
    state, content = _STATES[text[0]], text[1:]
    if state is ChildState.PROCESSED:
        return Child(queue=queue, id=job_id, state=state, result=msgspec.Raw(content) if content else None)
    error = msgspec.json.decode(content, type=JobError) if content else None
    return Child(queue=queue, id=job_id, state=state, error=error)


class Family:
    """What a processor may ask about its job's children; a part of `ActiveJob`."""

    _scripts: Scripts

    @property
    def id(self) -> str:
        raise NotImplementedError

    async def get_children_values(self) -> dict[str, Any]:
        """The results of the completed children, by `<queue>:<id>`."""
        return await read_values(self._scripts, self.id)

    async def get_ignored_children_failures(self) -> dict[str, JobError]:
        """Why children failed whose policy is "ignore" or "continue_parent", by `<queue>:<id>`."""
        return await read_ignored(self._scripts, self.id)

    async def get_dependencies(
        self, states: Iterable[ChildState] = tuple(ChildState), cursor: str | None = None, count: int = MAX_PAGE
    ) -> ChildPage:
        """A page of the children in these states."""
        return await read_page(self._scripts, self.id, states, cursor, count)

    async def get_dependencies_count(self) -> DependenciesCount:
        """How many children have come how far."""
        return await count(self._scripts, self.id)

    async def remove_unprocessed_children(self) -> int:
        """Remove the children that have not ended and do not run, with all below them; returns how many."""
        return await remove_unprocessed(self._scripts, self.id)

    async def wait_for_children(self) -> None:
        """Go on if no child is pending; else raises `WaitingChildrenError`, and the job runs again after them."""
        if (await count(self._scripts, self.id)).unprocessed:
            raise WaitingChildrenError
