"""A worker's claims: waits for jobs, takes them, and records how attempts ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from redis.exceptions import RedisError

from orchestrator.errors import StoreUnavailable
from orchestrator.keys import new_token
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import Claims, Client, Finish, connect, drop_connections, end_tasks, twin
from orchestrator.worker.wishes import Wishes

log = get_logger("worker")

BLOCK_S = 2.0
RETRY_S = 0.5
LAST_CALLS_S = 8.0

Call: TypeAlias = Callable[[str], Awaitable[Claims]]
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

    def is_looking(self) -> bool:
        """Whether somebody is idle and waits for a job."""
        return self.looking.locked()

    def look_again(self) -> None:
        """Something changed that whoever sleeps should know."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def call(self, lane: str, finishes: Sequence[Finish] = (), slots: int = 0) -> Claims | None:
        """Record how attempts ended and claim for free slots, for as long as that takes: no outage loses a result.

        A slot takes a job, or a batch. None when stopping without Redis.
        """

        async def call(token: str) -> Claims:
            may_claim = not (self._stopping.is_set() or self.is_paused)
            jobs = slots * self._wishes.slots if may_claim else 0
            who = token, lane, self._worker, self._lease_ms, self._interval_ms, jobs
            scripts, wishes = self._queue.scripts, self._wishes.encode()
            if finishes:
                return await scripts.move_to_finished(*who, finishes, wishes, self._keep)
            return await scripts.move_to_active(*who, wishes)

        self.sent_at[lane] = time.monotonic()
        with self.under_way(lane):
            return await self._until_answered(call)

    async def _until_answered(self, call: Call) -> Claims | None:
        """Make a call of a lane under one token until it is answered; None when stopping without Redis."""
        self._calls += 1
        token = f"{self._calls}-{new_token()}"  # the number tells a late copy of the call from the newest
        given_up_at: float | None = None
        loop = asyncio.get_running_loop()
        while True:
            try:
                if given_up_at is None:
                    return await call(token)
                async with asyncio.timeout_at(given_up_at):
                    return await call(token)
            except TimeoutError:
                return None
            except StoreUnavailable as problem:
                log.warning("worker.waiting_for_redis", worker=self._worker, problem=problem)
                self._on_trouble(problem)
            if self._stopping.is_set() and given_up_at is None:
                given_up_at = loop.time() + LAST_CALLS_S
            await asyncio.sleep(RETRY_S)

    async def sleep(self, sleep_ms: int, *, is_deaf: bool = False) -> None:
        """Until woken by the marker, but never longer than `sleep_ms` or `BLOCK_S`: a lost marker costs only that.

        A paused worker leaves the marker to the others, and is woken by `pause` alone; so does a deaf one, which is at
        a limit of its own, for `sleep_ms`.
        """
        if self._stopping.is_set():
            return
        block_s = BLOCK_S if sleep_ms < 0 else min(max(sleep_ms, 1) / 1000, BLOCK_S)
        self._changed = asyncio.get_running_loop().create_future()
        is_deaf = is_deaf or self.is_paused
        resting = asyncio.create_task(asyncio.sleep(block_s) if is_deaf else self._read_marker(block_s))
        try:
            await asyncio.wait((resting, self._changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._changed = None
            await end_tasks(resting)

    async def _read_marker(self, block_s: float) -> None:
        try:
            await self._blocking.bzpopmin(self._queue.keys.marker, block_s)
        except (RedisError, OSError):
            await drop_connections(self._blocking)  # a primary that became a replica would keep them
            await asyncio.sleep(RETRY_S)


def blocking_twin(redis: "str | Client") -> Client:
    """A client of its own for blocking reads: they hold a connection, and outlast the usual socket timeout."""
    if isinstance(redis, str):
        return connect(redis, max_connections=2, timeout_s=BLOCK_S + 3)
    return twin(redis, max_connections=2, timeout_s=BLOCK_S + 3)
