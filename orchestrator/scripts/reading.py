"""Calls that only read."""

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.events import events_of
from orchestrator.job import Job, JobState
from orchestrator.replies import read_job
from orchestrator.scripts.call import ScriptCaller

MAX_ENTRIES = 128
"""Of the stream in a call."""


class Page(NamedTuple):
    """A page of jobs, and the queue's newest event id.

    looked: how many ids the page covers. A record that has just ended is not among the jobs, but counts here: the
    next page begins `looked` after this one, and there is none when `looked` is less than was asked for.
    """

    jobs: list[Job]
    last_id: str
    looked: int


class Limits(NamedTuple):
    """What limits a queue, as of one instant; 0 = no such limit.

    wait_ms: how long the limits on starts hold up the next one. active: how many jobs run.
    """

    concurrency: int
    rate_max: int
    rate_ms: int
    wait_ms: int
    active: int


class ReadingScripts(ScriptCaller):
    """What reads jobs, counts and events."""

    async def get_job(self, job_id: str, *, history: bool) -> tuple[Job, list[bytes], str] | None:
        """The job, its history's entries, the queue's newest event id."""
        reply = await self._run("get_job", job_id, int(history))
        if not reply:
            return None
        return read_job(self.keys.queue, reply[0]), reply[1], reply[2].decode()

    async def get_jobs(self, states: Sequence[JobState], start: int, count: int) -> Page:
        """A page of each state; `looked` is that of the state with the most."""
        jobs, last_id, looked = await self._run("get_jobs", start, count, *states)
        return Page([read_job(self.keys.queue, job) for job in jobs], last_id.decode(), looked)

    async def get_recent(self, start: int, count: int) -> Page:
        """A page over all states."""
        jobs, last_id, looked = await self._run("get_recent", start, count)
        return Page([read_job(self.keys.queue, job) for job in jobs], last_id.decode(), looked)

    async def get_counts_per_priority(self, priorities: Sequence[int]) -> list[int]:
        """How many jobs of each priority wait."""
        return [int(count) for count in await self._run("get_counts_per_priority", *priorities)]

    async def get_counts(self) -> dict[str, int]:
        """State → number of jobs."""
        flat = await self._run("get_counts")
        return {name.decode(): count for name, count in zip(flat[::2], flat[1::2], strict=True)}

    async def get_meta(self, *names: str) -> list[str]:
        """Of the queue's record what has these names; empty where there is nothing."""
        return [text.decode() for text in await self._run("get_meta", *names)]

    async def get_limits(self) -> Limits:
        """The queue's limits."""
        return Limits(*map(int, await self._run("get_limits")))

    async def get_events(self, after: str, count: int) -> list[tuple[str, bytes]] | None:
        """Events of the queue after an id, as (id, JSON); None when that id is not covered any more."""
        found: list[tuple[str, bytes]] = []
        while True:
            most = min(count - len(found) + 1, MAX_ENTRIES)  # one may hold but what is known
            is_covered, *rest = await self._run("get_events", after, most)
            if is_covered == b"0":
                return found or None  # what was trimmed meanwhile is missed by the next call
            events = [event for entry_id, (_, lines) in rest[0] for event in events_of(entry_id, lines)]
            ids = [event_id for event_id, _ in events]
            found += events[ids.index(after) + 1 if after in ids else 0 :]
            if len(rest[0]) < most or len(found) >= count:
                return found[:count]
            after = found[-1][0]

    async def get_due_files(self, count: int) -> list[str]:
        """Folders of the storage that may be deleted now."""
        return [path.decode() for path in await self._run("get_due_files", count)]
