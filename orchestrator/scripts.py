"""The one seam to Redis: a method per Lua script, sent again until its answer is known."""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from redis import exceptions as redis_errors
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

import lua
from orchestrator import errors
from orchestrator.job import CancelRequest, Job, JobState
from orchestrator.keys import Keys
from orchestrator.replies import read_added, read_cancel, read_claimed, read_job

Client: TypeAlias = Redis

DEADLINE_S = 20.0
"""For how long a call is sent again before `OutcomeUnknown`."""
OUTBOX_MAX = 100_000
CANCEL_AGAIN_S = 0.05
PREVIEW_MS = 600_000

_ERRORS: dict[str, type[errors.KargahError]] = {
    "JOB_NOT_FOUND": errors.JobNotFound,
    "WRONG_STATE": errors.WrongState,
    "LEASE_LOST": errors.LeaseLost,
    "QUEUE_FULL": errors.QueueFull,
    "LAYOUT_MISMATCH": errors.LayoutMismatch,
    "OOM": errors.StoreUnavailable,
    "MISCONF": errors.StoreUnavailable,
}
_PASSING = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ClusterError,
    redis_errors.TryAgainError,
    redis_errors.ReadOnlyError,
    redis_errors.MasterDownError,
    TimeoutError,
    OSError,
)
_PASSING_WORDS = ("BUSY ", "UNBLOCKED ", "NOREPLICAS ")
"""Errors that redis-py has no class for."""


class Claim(NamedTuple):
    """A job and the lease on it."""

    job: Job
    lease: str


class Finish(NamedTuple):
    """How an attempt ended. `outcome`: completed, failed, canceled or returned; `pause_ms` −1 = no further attempt."""

    job_id: str
    lease: str
    outcome: str
    content: bytes
    pause_ms: int = -1


class Claims(NamedTuple):
    """What a claiming call brought. `sleep_ms`: how long a worker without work may sleep, −1 = until woken."""

    outcomes: list[str]
    claims: list[Claim]
    sleep_ms: int


class Report(NamedTuple):
    """What a running attempt tells: `name` "" = progress, else a milestone; `content` is JSON."""

    number: int
    name: str
    content: bytes
    preview: bytes = b""


def connect(url: str, *, max_connections: int = 64, timeout_s: float | None = 5.0) -> Client:
    """A client for `redis://`, `rediss://` or `unix://`. A pool at its limit waits instead of failing.

    Sending again is left to `Scripts`, the only one who knows that it is safe. For blocking reads pass a
    `timeout_s` above the block.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=20,
        socket_timeout=timeout_s,
        socket_connect_timeout=3,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=15,
    )
    return Redis.from_pool(pool)


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks that talk to Redis until they have ended.

    redis-py sends through `asyncio.wait_for`, which on Python 3.11 may swallow a cancellation.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)


class Scripts:
    """Runs the scripts of one queue. Every call may be sent more than once; the scripts make that harmless."""

    def __init__(self, client: Client, keys: Keys, deadline_s: float = DEADLINE_S) -> None:
        self.client = client
        self.keys = keys
        self.deadline_s = deadline_s

    # ── adding, reading ──────────────────────────────────────────────────────────────────────────────

    async def add_job(self, token: str, job_id: str, header: bytes, data: bytes) -> tuple[bool, JobState, int]:
        """Whether this call made the job, its state, and when it was created (ms)."""
        return read_added(await self._run("add_job", token, job_id, header, data, OUTBOX_MAX))

    async def fan_out(self, token: str, job_id: str, header: bytes, data: bytes) -> tuple[bool, JobState, int]:
        """The same for a delivery, which a full server takes too."""
        return read_added(await self._run("fan_out", token, job_id, header, data))

    async def get_job(self, job_id: str, *, history: bool) -> tuple[Job, list[bytes], str] | None:
        """The job, its history's entries, the queue's newest event id."""
        reply = await self._run("get_job", job_id, int(history))
        if not reply:
            return None
        return read_job(self.keys.queue, reply[0]), reply[1], reply[2].decode()

    async def get_jobs(self, states: Sequence[JobState], start: int, count: int) -> tuple[list[Job], str]:
        """A page of each state, and the queue's newest event id."""
        jobs, last_id = await self._run("get_jobs", start, count, *states)
        return [read_job(self.keys.queue, job) for job in jobs], last_id.decode()

    async def get_recent(self, start: int, count: int) -> tuple[list[Job], str]:
        """A page over all states, and the queue's newest event id."""
        jobs, last_id = await self._run("get_recent", start, count)
        return [read_job(self.keys.queue, job) for job in jobs], last_id.decode()

    async def get_counts(self) -> dict[str, int]:
        """State → number of jobs."""
        flat = await self._run("get_counts")
        return {name.decode(): count for name, count in zip(flat[::2], flat[1::2], strict=True)}

    async def get_events(self, after: str, count: int) -> list[tuple[str, bytes]] | None:
        """Events of the queue after an id, as (id, JSON); None when that id is not covered any more."""
        reply = await self._run("get_events", after, count)
        if reply[0] == b"0":
            return None
        return [(event_id.decode(), fields[1]) for event_id, fields in reply[1]]

    async def get_due_files(self, count: int) -> list[str]:
        """Folders of the storage that may be deleted now."""
        return [path.decode() for path in await self._run("get_due_files", count)]

    # ── a worker's calls ─────────────────────────────────────────────────────────────────────────────

    async def move_to_active(
        self, token: str, lane: str, worker: str, lease_ms: int, interval_ms: int, slots: int
    ) -> Claims:
        """Claim up to `slots` jobs."""
        claims, sleep_ms = await self._run("move_to_active", token, lane, worker, lease_ms, interval_ms, slots)
        return Claims([], [_claim(self.keys.queue, claim) for claim in claims], int(sleep_ms))

    async def move_to_finished(
        self,
        token: str,
        lane: str,
        worker: str,
        lease_ms: int,
        interval_ms: int,
        slots: int,
        finishes: Sequence[Finish],
    ) -> Claims:
        """End attempts and claim up to `slots` jobs in the same round trip."""
        parts = [part for finish in finishes for part in finish]
        reply = await self._run("move_to_finished", token, lane, worker, lease_ms, interval_ms, slots, *parts)
        outcomes = [outcome.decode() for outcome in reply[0]]
        return Claims(outcomes, [_claim(self.keys.queue, claim) for claim in reply[1]], int(reply[2]))

    async def extend_locks(
        self, lease_ms: int, cancel_ms: int, held: Sequence[tuple[str, str]]
    ) -> list[CancelRequest | bool]:
        """Renew leases; for each: True (renewed), False (lost), or the request to stop (renewed)."""
        parts = [part for pair in held for part in pair]
        replies = await self._run("extend_locks", lease_ms, cancel_ms, *parts)
        return [False if reply == b"LEASE_LOST" else read_cancel(reply) or True for reply in replies]

    async def update_progress(self, job_id: str, lease: str, report: Report) -> CancelRequest | None:
        """Record a report; the answer says whether to stop."""
        number, name, content, preview = report
        reply = await self._run("update_progress", job_id, lease, number, name, content, preview, PREVIEW_MS)
        return read_cancel(reply)

    async def add_log(self, job_id: str, lease: str, number: int, line: str) -> CancelRequest | None:
        """Add a line to the job's log; the answer says whether to stop."""
        return read_cancel(await self._run("add_log", job_id, lease, number, line))

    # ── administration ───────────────────────────────────────────────────────────────────────────────

    async def cancel_job(self, token: str, job_id: str, cancel: bytes) -> JobState:
        """Cancel, or ask the worker to."""
        return JobState((await self._run("cancel_job", token, job_id, cancel)).decode())

    async def reprocess_job(self, token: str, job_id: str) -> JobState:
        """Start a new run of a finished job."""
        return JobState((await self._run("reprocess_job", token, job_id)).decode())

    async def remove_job(self, token: str, job_id: str) -> bool:
        """Remove a job that does not run."""
        return bool(await self._run("remove_job", token, job_id))

    async def promote(self, token: str, job_id: str) -> JobState:
        """End a job's delay."""
        return JobState((await self._run("promote", token, job_id)).decode())

    async def change_priority(self, token: str, job_id: str, priority: int) -> JobState:
        """Give a job another priority."""
        return JobState((await self._run("change_priority", token, job_id, priority)).decode())

    async def pause(self, token: str, *, paused: bool) -> None:
        """Pause or resume the queue."""
        await self._run("pause", token, int(paused))

    async def set_limits(
        self,
        token: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, int] | None = None,
        limited_ms: int | None = None,
    ) -> None:
        """Change what is not None; 0 lifts a limit. `rate` = (starts, window in ms)."""
        rate_max, rate_ms = ("", "") if rate is None else rate
        concurrency_text = "" if concurrency is None else concurrency
        await self._run(
            "set_limits", token, concurrency_text, rate_max, rate_ms, "" if limited_ms is None else limited_ms
        )

    # ── duties, relay ────────────────────────────────────────────────────────────────────────────────

    async def promote_jobs(self, limit: int) -> int:
        """Move what is due; returns how many."""
        return int(await self._run("promote_jobs", limit))

    async def move_stalled_to_wait(self, lease_ms: int, interval_ms: int, limit: int) -> int:
        """Recover what is stalled; returns how many."""
        return int(await self._run("move_stalled_to_wait", lease_ms, interval_ms, limit))

    async def remove_expired(self, limit: int) -> int:
        """Drop entries of records whose retention has ended; returns how many."""
        return int(await self._run("remove_expired", limit))

    async def forget_files(self, paths: Sequence[str]) -> None:
        """These folders of the storage are deleted."""
        if paths:
            await self._run("forget_files", *paths)

    async def create_group(self, group: str) -> None:
        """Make sure that the outbox and its consumer group exist."""
        await self._run("create_group", group)

    async def acknowledge(self, group: str, entry_ids: Sequence[str]) -> None:
        """Acknowledge outbox entries and delete them."""
        if entry_ids:
            await self._run("acknowledge", group, *entry_ids)

    # ── the call ─────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, name: str, *args: str | bytes | int) -> Any:
        return await self.retrying(name, lambda: self._evaluate(name, args))

    async def retrying(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call that may be made twice, until it is answered or the deadline is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.deadline_s
        pause_s = 0.02
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await call()
            except _PASSING as problem:
                trouble: Exception = problem
            except redis_errors.ResponseError as problem:
                if not str(problem).startswith(_PASSING_WORDS):
                    raise _named(problem) from None
                trouble = problem
            wait_s = pause_s * random.uniform(0.5, 1.0)
            if loop.time() + wait_s >= deadline:
                raise errors.OutcomeUnknown(
                    f"Redis gave no answer to {name} within {self.deadline_s:g} s ({_reason(trouble)}); "
                    "the call may have had its effect, and may safely be sent again"
                ) from trouble
            await asyncio.sleep(wait_s)
            pause_s = min(pause_s * 2, 1.0)

    async def _evaluate(self, name: str, args: Sequence[str | bytes | int]) -> Any:
        try:
            return await self.client.evalsha(_sha(name), 2, self.keys.meta, self.keys.none, *args)
        except redis_errors.NoScriptError:
            return await self.client.eval(lua.source(name), 2, self.keys.meta, self.keys.none, *args)


_shas: dict[str, str] = {}


def _sha(name: str) -> str:
    if name not in _shas:
        _shas[name] = hashlib.sha1(lua.source(name).encode(), usedforsecurity=False).hexdigest()
    return _shas[name]


def _claim(queue: str, reply: Sequence[bytes]) -> Claim:
    job = read_claimed(queue, reply)
    return Claim(job, job.lease or "")


def _named(problem: redis_errors.ResponseError) -> Exception:
    word, _, rest = str(problem).partition(" ")
    if isinstance(problem, redis_errors.OutOfMemoryError):
        return errors.StoreUnavailable("Redis is full (maxmemory); nothing was changed")
    named = _ERRORS.get(word)
    return problem if named is None else named(rest)


def _reason(trouble: Exception) -> str:
    return str(trouble) or type(trouble).__name__
