"""Reading jobs, counts and events."""

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.errors import InvalidOption, JobNotFound
from orchestrator.events import Event, id_key
from orchestrator.job import MAX_PRIORITY, Job, JobState, check_int
from orchestrator.keys import check_job_id
from orchestrator.queue.connection import QueueConnection
from orchestrator.scripts import Page

MAX_PAGE = 100
MAX_READ = 200  # 300 were seen to take 6 ms, and no script may take over 5
MAX_RECENT = 1000
MAX_EVENT_PAGE = 1000


class Snapshot(NamedTuple):
    """A job and its history as of one instant; `last_id` is the queue's newest event id then."""

    job: Job
    history: list[Event]
    last_id: str


class Reading(QueueConnection):
    """What a watcher does."""

    async def get_job(self, job_id: str) -> Job | None:
        """The job as it is now; None when there is no such job."""
        found = await self.scripts.get_job(check_job_id(job_id), history=False)
        return None if found is None else found[0]

    async def get_snapshot(self, job_id: str) -> Snapshot | None:
        """The job, its whole history and the queue's newest event id, as of one instant."""
        found = await self.scripts.get_job(check_job_id(job_id), history=True)
        if found is None:
            return None
        job, entries, last_id = found
        return Snapshot(job, [Event.decode_entry(entry) for entry in entries], last_id)

    async def get_history(self, job_id: str, after: str | None = None) -> list[Event]:
        """The job's events after an event id, oldest first. Raises `JobNotFound`."""
        snapshot = await self.get_snapshot(job_id)
        if snapshot is None:
            raise JobNotFound(f"there is no job {job_id}")
        if after is None:
            return snapshot.history
        return [event for event in snapshot.history if id_key(event.id) > id_key(after)]

    async def get_jobs(self, states: Sequence[JobState], start: int = 0, count: int = 50) -> list[Job]:
        """A page of each state: waiting and delayed ones next first, finished ones newest first.

        Pages of together 200 jobs are of one instant. More are read in steps: of a job that moves meanwhile comes the
        newest that was seen of it, or nothing.
        """
        check_int("start", start, 0, 2**53)
        check_int("count", count, 1, MAX_PAGE)
        if isinstance(states, str) or not set(states) <= set(JobState):
            raise InvalidOption("states", f"must be a list of job states: {', '.join(JobState)}")
        found: dict[str, Job] = {}
        at_once = max(MAX_READ // count, 1)
        for first in range(0, len(states), at_once):
            page = await self.scripts.get_jobs(states[first : first + at_once], start, count)
            found |= {job.id: job for job in page.jobs}
        return list(found.values())

    async def get_recent(self, start: int = 0, count: int = 50) -> tuple[list[Job], str]:
        """A page over all states, unfinished ones first, then finished ones, newest first; and the newest event id."""
        check_int("start", start, 0, MAX_RECENT)
        check_int("count", count, 1, MAX_PAGE)
        page = await self.scripts.get_recent(start, count)
        return page.jobs, page.last_id

    async def get_page(self, start: int = 0, count: int = 50, state: JobState | None = None) -> Page:
        """A page of one state, or over all as `get_recent`, with what is needed to go on: see `Page.looked`."""
        check_int("start", start, 0, MAX_RECENT if state is None else 2**53)
        check_int("count", count, 1, MAX_PAGE)
        if state is None:
            return await self.scripts.get_recent(start, count)
        return await self.scripts.get_jobs([JobState(state)], start, count)

    async def get_counts(self) -> dict[str, int]:
        """How many jobs are in each state. `prioritized` and `grouped` ones are waiting, too."""
        return await self.scripts.get_counts()

    async def count(self) -> int:
        """How many jobs have yet to start: waiting and delayed ones, and those that wait for children."""
        counts = await self.get_counts()
        return counts["waiting"] + counts["delayed"] + counts["waiting-children"]

    async def get_counts_per_priority(self, priorities: Sequence[int]) -> dict[int, int]:
        """How many jobs of each of these priorities (at most 500) wait."""
        if not 1 <= len(priorities) <= 500:
            raise InvalidOption("priorities", "must be 1 to 500 priorities")
        for priority in priorities:
            check_int("priorities", priority, 0, MAX_PRIORITY)
        return dict(zip(priorities, await self.scripts.get_counts_per_priority(priorities), strict=True))

    async def get_logs(self, job_id: str, start: int = 0, count: int = MAX_PAGE) -> list[str]:
        """Lines that the processor logged, oldest first."""
        check_int("start", start, 0, 2**53)
        check_int("count", count, 1, 1000)
        key = f"{self.keys.prefix}lines:{check_job_id(job_id)}"
        lines = await self.scripts.retrying("LRANGE", lambda: self.client.lrange(key, start, start + count - 1))
        return [line.decode() for line in lines]

    async def clear_logs(self, job_id: str, keep: int = 0) -> None:
        """Forget the lines that the processor logged, but the newest `keep`. Source: BullMQ's clearJobLogs."""
        check_int("keep", keep, 0, 100_000)
        key = f"{self.keys.prefix}lines:{check_job_id(job_id)}"
        start, stop = (-keep, -1) if keep else (1, 0)
        await self.scripts.retrying("LTRIM", lambda: self.client.ltrim(key, start, stop))

    async def get_preview(self, job_id: str) -> bytes | None:
        """The newest preview picture of a running job."""
        key = self.keys.preview(check_job_id(job_id))
        preview: bytes | None = await self.scripts.retrying("GET", lambda: self.client.get(key))
        return preview

    async def events_after(self, last_id: str, count: int = MAX_EVENT_PAGE) -> list[Event] | None:
        """The queue's events after `last_id`, oldest first.

        None when that event is not there any more (trimmed, or of another life of the queue): then nothing can
        be said about what came between, and a new snapshot is due.
        """
        id_key(last_id)
        check_int("count", count, 1, MAX_EVENT_PAGE)
        events = await self.scripts.get_events(last_id, count)
        return None if events is None else [Event.decode(event_id, text) for event_id, text in events]
