"""A queue of jobs: adding, reading, steering."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

import msgspec

from orchestrator.errors import InvalidOption, JobNotFound, StoreUnavailable
from orchestrator.events import Event, id_key
from orchestrator.job import (
    MAX_DATA_BYTES,
    MAX_PRIORITY,
    CancelRequest,
    Job,
    JobOptions,
    JobState,
    check_int,
    clip,
    encode_json,
)
from orchestrator.keys import QUEUES_KEY, Keys, check_job_id, new_job_id, new_token
from orchestrator.scripts import DEADLINE_S, Client, Scripts, connect

MAX_PAGE = 100
MAX_RECENT = 1000
MAX_EVENT_PAGE = 1000
MAX_REASON_BYTES = 512


AddScript: TypeAlias = Callable[[str, str, bytes, bytes], Awaitable[tuple[bool, JobState, int]]]


class Snapshot(NamedTuple):
    """A job and its history as of one instant; `last_id` is the queue's newest event id then."""

    job: Job
    history: list[Event]
    last_id: str


class Queue:
    """One queue. Safe to share between tasks; close it, or use it as an async context manager.

        async with Queue("paint", "redis://localhost") as queue:
            job = await queue.add("portrait", {"of": "a cat"}, JobOptions(priority=1, attempts=3))

    Every call may raise `StoreUnavailable` (Redis is full) or `OutcomeUnknown` (no answer within `deadline_s`).

    Source: BullMQ's Queue.
    """

    def __init__(
        self,
        name: str,
        redis: "str | Client" = "redis://localhost:6379",
        *,
        default_job_options: JobOptions | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.keys = Keys(name)
        self.name = name
        self._owns_client = isinstance(redis, str)
        self.client: Client = connect(redis) if isinstance(redis, str) else redis
        self.scripts = Scripts(self.client, self.keys, deadline_s)
        self._default_job_options = default_job_options or JobOptions()
        self._is_registered = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, if this queue opened them."""
        if self._owns_client:
            await self.client.aclose()

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

    async def add(self, name: str, data: object = None, opts: JobOptions | None = None) -> Job:
        """Store a job and queue it.

        The same id again (also after a lost answer) gives the job that is there, `duplicated` when another
        call made it. Raises `InvalidOption` before anything is sent, `QueueFull` when the relay is far behind.
        """
        await self._register()
        return await self._store(self.scripts.add_job, name, data, opts or self._default_job_options)

    async def fan_out(self, name: str, data: object, opts: JobOptions) -> Job:
        """Store a job that the service owes, like the delivery of an event: also when Redis is full.

        Otherwise like `add`.
        """
        with contextlib.suppress(StoreUnavailable):  # naming the queue can wait for a server with room
            await self._register()
        return await self._store(self.scripts.fan_out, name, data, opts)

    async def _store(self, script: AddScript, name: str, data: object, options: JobOptions) -> Job:
        header = options.header(name)
        encoded = encode_json("data", data, MAX_DATA_BYTES)
        job_id = new_job_id() if options.id is None else options.id
        while True:
            is_new, state, created_at = await script(new_token(), job_id, msgspec.json.encode(header), encoded)
            if is_new:
                break
            present = await self.get_job(job_id)
            if present is not None:  # else it ended between the two calls, and the id is free again
                return present.replace(duplicated=True)
        return Job(
            queue=self.name,
            id=job_id,
            header=header,
            data=msgspec.Raw(encoded),
            state=state,
            created_at=created_at,
            priority=header.priority,
            due_at=created_at + header.delay_ms if header.delay_ms else None,
        )

    async def _register(self) -> None:
        """Name this queue to the duties and relays, before its first job."""
        if not self._is_registered:
            await self.scripts.retrying("SADD", lambda: self.client.sadd(QUEUES_KEY, self.name))
            self._is_registered = True

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

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
        """A page of each state: waiting and delayed ones next first, finished ones newest first."""
        check_int("start", start, 0, 2**53)
        check_int("count", count, 1, MAX_PAGE)
        if isinstance(states, str) or not set(states) <= set(JobState):
            raise InvalidOption("states", f"must be a list of job states: {', '.join(JobState)}")
        jobs, _ = await self.scripts.get_jobs(states, start, count)
        return jobs

    async def get_recent(self, start: int = 0, count: int = 50) -> tuple[list[Job], str]:
        """A page over all states, unfinished ones first, then finished ones, newest first; and the newest event id."""
        check_int("start", start, 0, MAX_RECENT)
        check_int("count", count, 1, MAX_PAGE)
        return await self.scripts.get_recent(start, count)

    async def get_counts(self) -> dict[str, int]:
        """How many jobs are in each state. `prioritized` ones are waiting ones with a priority."""
        return await self.scripts.get_counts()

    async def get_logs(self, job_id: str, start: int = 0, count: int = MAX_PAGE) -> list[str]:
        """Lines that the processor logged, oldest first."""
        check_int("start", start, 0, 2**53)
        check_int("count", count, 1, 1000)
        key = f"{self.keys.prefix}lines:{check_job_id(job_id)}"
        lines = await self.scripts.retrying("LRANGE", lambda: self.client.lrange(key, start, start + count - 1))
        return [line.decode() for line in lines]

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

    # ── steering ─────────────────────────────────────────────────────────────────────────────────────

    async def cancel(self, job_id: str, by: str = "", reason: str = "") -> Job:
        """Cancel a waiting job at once, or ask a running one to stop (it ends as canceled unless it completes first).

        Raises `JobNotFound`, and `WrongState` when it has finished.
        """
        request = CancelRequest(clip(by, MAX_REASON_BYTES), clip(reason, MAX_REASON_BYTES))
        state = await self.scripts.cancel_job(new_token(), check_job_id(job_id), msgspec.json.encode(request))
        return await self._after(job_id, state)

    async def retry(self, job_id: str) -> Job:
        """Start a new run of a finished job, with fresh attempts. Raises `JobNotFound`, `WrongState`."""
        return await self._after(job_id, await self.scripts.reprocess_job(new_token(), check_job_id(job_id)))

    async def remove(self, job_id: str) -> bool:
        """Remove a job that does not run, with its history and files. Raises `WrongState` while it runs."""
        return await self.scripts.remove_job(new_token(), check_job_id(job_id))

    async def promote(self, job_id: str) -> Job:
        """End a job's delay; its priority stays. Raises `JobNotFound`, `WrongState`."""
        return await self._after(job_id, await self.scripts.promote(new_token(), check_job_id(job_id)))

    async def change_priority(self, job_id: str, priority: int) -> Job:
        """Give an unfinished job another priority; a waiting one goes behind its new equals."""
        check_int("priority", priority, 0, MAX_PRIORITY)
        state = await self.scripts.change_priority(new_token(), check_job_id(job_id), priority)
        return await self._after(job_id, state)

    async def pause(self) -> None:
        """Let no more jobs start, on any worker; running ones go on."""
        await self.scripts.pause(new_token(), paused=True)

    async def resume(self) -> None:
        """Let jobs start again."""
        await self.scripts.pause(new_token(), paused=False)

    async def is_paused(self) -> bool:
        """Whether the queue is paused."""
        paused = await self.scripts.retrying("HGET", lambda: self.client.hget(self.keys.meta, "paused"))
        return paused is not None

    async def set_global_concurrency(self, concurrency: int) -> None:
        """At most so many jobs run at once, over all workers; 0 lifts the limit."""
        check_int("concurrency", concurrency, 0, 1_000_000)
        await self.scripts.set_limits(new_token(), concurrency=concurrency)

    async def set_global_rate_limit(self, max_starts: int, duration_ms: int) -> None:
        """At most so many starts in any window of `duration_ms`; 0 lifts the limit."""
        check_int("max_starts", max_starts, 0, 10_000)
        check_int("duration_ms", duration_ms, 1, 86_400_000)
        await self.scripts.set_limits(new_token(), rate=(max_starts, duration_ms))

    async def rate_limit(self, duration_ms: int) -> None:
        """Nothing starts for so long, as when an outside API said "too many requests"; 0 lifts it."""
        check_int("duration_ms", duration_ms, 0, 86_400_000)
        await self.scripts.set_limits(new_token(), limited_ms=duration_ms)

    async def _after(self, job_id: str, state: JobState) -> Job:
        found = await self.get_job(job_id)
        if found is None:  # its options let it go with its end
            raise JobNotFound(f"job {job_id} is {state} and, as its options say, not kept")
        return found
