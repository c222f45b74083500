"""A worker's claims: waits for jobs, takes them, and records how attempts ended."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

from redis.exceptions import RedisError

from orchestrator.errors import StoreUnavailable
from orchestrator.keys import new_token
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import Claims, Client, Finish, connect, drop_connections, end_tasks, twin
from orchestrator.worker.wishes import Wishes

log = get_logger("worker")

BLOCK_S = 2.0
MARGIN_S = 3.0
AHEAD_OF_LEASE = 1 / 8
"""With a third of the lease, after which it is renewed, it is below the half at which the keeper takes it for late."""
LEAST_AHEAD_S = 0.05
"""With a shorter lease an idle worker would call too often."""
RETRY_S = 0.5
LAST_CALLS_S = 8.0
LAST_LOOK_S = 1.0
"""For how long a worker that stops asks what the claim of its last sleep came to; most often to nothing."""

_T = TypeVar("_T")
UnderWay: TypeAlias = Callable[[str], AbstractContextManager[None]]


class Claimer:
    """Claims jobs in lanes: in each at most one call is in flight, so that a call sent again finds its answer.

    sent_at: by lane, when its last call was sent (monotonic); the lease of a job that it brought is no older.
    is_choosy: a call brings one job, or one batch, at most: the next may be another by then.
    under_way: called with a lane, entered while a call of it is in flight.
    """

    def __init__(
        self,
        queue: Queue,
        blocking: Client,
        worker: str,
        lease_ms: int,
        interval_ms: int,
        stopping: asyncio.Event,
        wishes: Wishes,
        keep: bytes = b"",
        on_trouble: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self.id = new_token()
        self.is_choosy = wishes.is_choosy
        self._queue = queue
        self._blocking = blocking
        self._worker = worker
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self._stopping = stopping
        self._wishes = wishes
        self._keep = keep
        self._on_trouble = on_trouble
        self.is_paused = False
        self.sent_at: dict[str, float] = {}
        self.under_way: UnderWay = lambda lane: nullcontext()
        self.looking = asyncio.Lock()
        self._changed: asyncio.Future[None] | None = None
        self._calls = 0
        self._has_failed = False

    def is_looking(self) -> bool:
        """Whether somebody is idle and waits for a job."""
        return self.looking.locked()

    def may_call_ahead(self) -> bool:
        """Whether `call_ahead` is of use; not again, after it failed, before a sleep of the usual kind."""
        is_rare = self._lease_ms * AHEAD_OF_LEASE >= LEAST_AHEAD_S * 1000
        return is_rare and not (self.is_choosy or self._has_failed)

    def look_again(self) -> None:
        """Something changed that whoever sleeps should know."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def call(self, lane: str, finishes: Sequence[Finish] = (), slots: int = 0) -> Claims | None:
        """Record how attempts ended and claim for free slots, for as long as that takes: no outage loses a result.

        A slot takes a job, or a batch. None when stopping without Redis.
        """
        self.sent_at[lane] = time.monotonic()
        return await self._until_answered(lane, self._new_token(), finishes, slots)

    async def call_ahead(self, lane: str, sleep_ms: int) -> Claims | None:
        """Sleep, and claim for one slot by a call that the server has before the sleep ends: what wakes us brings it.

        When the sleep is ended early, or anything goes wrong, the same call goes the usual way: it finds what its first
        copy did. It sleeps for a small part of the lease at most, since a claim may be as old as the sleep.
        """
        self.sent_at[lane] = time.monotonic()
        token = self._new_token()
        async with self.looking:
            block_s = min(_block_s(sleep_ms), self._lease_ms * AHEAD_OF_LEASE / 1000)
            claims = await self._until_changed(self._send_ahead(lane, token, block_s), block_s + MARGIN_S)
        return await self._until_answered(lane, token, slots=1) if claims is None else claims

    async def _send_ahead(self, lane: str, token: str, block_s: float) -> Claims | None:
        call = (*self._who(lane, token), 1, self._wishes.encode())
        try:
            return await self._queue.scripts.move_to_active_when_woken(self._blocking, block_s, *call)
        except (RedisError, OSError):
            self._has_failed = True
            return None

    async def _send(self, lane: str, token: str, finishes: Sequence[Finish], slots: int) -> Claims:
        who, wishes = self._who(lane, token), self._wishes.encode()
        jobs = 0 if self._stopping.is_set() or self.is_paused else slots * self._wishes.slots
        if finishes:
            return await self._queue.scripts.move_to_finished(*who, jobs, finishes, wishes, self._keep)
        return await self._queue.scripts.move_to_active(*who, jobs, wishes)

    async def _until_answered(
        self, lane: str, token: str, finishes: Sequence[Finish] = (), slots: int = 0
    ) -> Claims | None:
        """Make a call of a lane until it is answered; None when stopping without Redis."""
        loop = asyncio.get_running_loop()
        given_up_at = loop.time() + LAST_LOOK_S if self._stopping.is_set() and not finishes else None
        with self.under_way(lane):
            while True:
                try:
                    if given_up_at is None:
                        return await self._send(lane, token, finishes, slots)
                    async with asyncio.timeout_at(given_up_at):
                        return await self._send(lane, token, finishes, slots)
                except TimeoutError:
                    return None
                except StoreUnavailable as problem:
                    log.warning("worker.waiting_for_redis", worker=self._worker, problem=problem)
                    self._on_trouble(problem)
                if self._stopping.is_set() and given_up_at is None:
                    given_up_at = loop.time() + LAST_CALLS_S
                await asyncio.sleep(RETRY_S)

    def _who(self, lane: str, token: str) -> tuple[str, str, str, int, int]:
        return token, lane, self._worker, self._lease_ms, self._interval_ms

    def _new_token(self) -> str:
        self._calls += 1
        return f"{self._calls}-{new_token()}"  # the number tells a late copy of the call from the newest

    async def sleep(self, sleep_ms: int, *, is_deaf: bool = False) -> None:
        """Until woken by the marker, but never longer than `sleep_ms` or `BLOCK_S`: a lost marker costs only that.

        A paused worker leaves the marker to the others, and is woken by `pause` alone; so does a deaf one, which is at
        a limit of its own, for `sleep_ms`.
        """
        if self._stopping.is_set():
            return
        self._has_failed = False
        block_s = _block_s(sleep_ms)
        await self._until_changed(asyncio.sleep(block_s) if is_deaf or self.is_paused else self._read_marker(block_s))

    async def _until_changed(self, resting: Coroutine[Any, Any, _T], timeout_s: float | None = None) -> _T | None:
        """What it returns; None when `look_again` ended it, or its time was over."""
        self._changed = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(resting)
        try:
            await asyncio.wait((task, self._changed), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._changed = None
            await end_tasks(task)
        return None if task.cancelled() else task.result()

    async def _read_marker(self, block_s: float) -> None:
        try:
            await self._blocking.bzpopmin(self._queue.keys.marker, block_s)
        except (RedisError, OSError):
            await drop_connections(self._blocking)  # a primary that became a replica would keep them
            await asyncio.sleep(RETRY_S)


def _block_s(sleep_ms: int) -> float:
    return BLOCK_S if sleep_ms < 0 else min(max(sleep_ms, 1) / 1000, BLOCK_S)


def blocking_twin(redis: "str | Client") -> Client:
    """A client of its own for blocking reads: they hold a connection, and outlast the usual socket timeout."""
    if isinstance(redis, str):
        return connect(redis, max_connections=2, timeout_s=BLOCK_S + MARGIN_S)
    return twin(redis, max_connections=2, timeout_s=BLOCK_S + MARGIN_S)
