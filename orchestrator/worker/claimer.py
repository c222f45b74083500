"""A worker's claims: waits for jobs, takes them, and records how attempts ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from redis.exceptions import RedisError

from orchestrator.errors import StoreUnavailable
from orchestrator.keys import new_token
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Claims, Client, Finish, connect, end_tasks

log = get_logger("worker")

BLOCK_S = 2.0
RETRY_S = 0.5
LAST_CALLS_S = 8.0

Call: TypeAlias = Callable[[str], Awaitable[Claims]]
UnderWay: TypeAlias = Callable[[str], AbstractContextManager[None]]


class Claimer:
    """Claims jobs in lanes: in each at most one call is in flight, so that a call sent again finds its answer.

    sent_at: by lane, when its last call was sent (monotonic); the lease of a job that it brought is no older.
    under_way: called with a lane, entered while a call of it is in flight.
    """

    def __init__(
        self, queue: Queue, blocking: Client, worker: str, lease_ms: int, interval_ms: int, stopping: asyncio.Event
    ) -> None:
        self.id = new_token()
        self._queue = queue
        self._blocking = blocking
        self._worker = worker
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self._stopping = stopping
        self._looking = asyncio.Lock()
        self._calls = 0
        self.sent_at: dict[str, float] = {}
        self.under_way: UnderWay = lambda lane: nullcontext()

    def is_looking(self) -> bool:
        """Whether a lane is idle and waits for a job."""
        return self._looking.locked()

    async def next_claim(self, lane: str) -> Claim | None:
        """Wait for a job; None when stopping. One idle lane looks at a time, the next when that one found something."""
        async with self._looking:
            while not self._stopping.is_set():
                claims = await self._call(lambda token: self._move_to_active(token, lane), lane)
                if claims is None:
                    return None
                if claims.claims:
                    return claims.claims[0]
                await self._sleep(claims.sleep_ms)
        return None

    async def finish(self, lane: str, finish: Finish, slots: int = 1) -> Claims | None:
        """Record the end of an attempt and claim the next job, for as long as that takes: no outage loses a result.

        None when stopping without Redis.
        """

        async def call(token: str) -> Claims:
            wish = 0 if self._stopping.is_set() else slots
            return await self._queue.scripts.move_to_finished(
                token, lane, self._worker, self._lease_ms, self._interval_ms, wish, [finish]
            )

        return await self._call(call, lane)

    async def _move_to_active(self, token: str, lane: str) -> Claims:
        return await self._queue.scripts.move_to_active(token, lane, self._worker, self._lease_ms, self._interval_ms, 1)

    async def _call(self, call: Call, lane: str) -> Claims | None:
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
                async with asyncio.timeout_at(given_up_at):
                    return await call(token)
            except TimeoutError:
                return None
            except StoreUnavailable as problem:
                log.warning("worker.waiting_for_redis", worker=self._worker, problem=problem)
            if self._stopping.is_set() and given_up_at is None:
                given_up_at = loop.time() + LAST_CALLS_S
            await asyncio.sleep(RETRY_S)

    async def _sleep(self, sleep_ms: int) -> None:
        """Until woken by the marker, but never longer than `sleep_ms` or `BLOCK_S`: a lost marker costs only that."""
        if self._stopping.is_set():
            return
        block_s = BLOCK_S if sleep_ms < 0 else min(max(sleep_ms, 1) / 1000, BLOCK_S)
        woken = asyncio.create_task(self._read_marker(block_s))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([woken, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(woken, stopping)

    async def _read_marker(self, block_s: float) -> None:
        try:
            await self._blocking.bzpopmin(self._queue.keys.marker, block_s)
        except (RedisError, OSError):
            await asyncio.sleep(RETRY_S)


def blocking_twin(redis: "str | Client") -> Client:
    """A client of its own for blocking reads: they hold a connection, and outlast the usual socket timeout."""
    if isinstance(redis, str):
        return connect(redis, max_connections=2, timeout_s=BLOCK_S + 3)
    pool = redis.connection_pool
    kwargs = pool.connection_kwargs | {"socket_timeout": BLOCK_S + 3}
    twin = type(pool)(connection_class=pool.connection_class, max_connections=2, **kwargs)
    return type(redis).from_pool(twin)
