"""A worker's claims: waits for jobs, takes them, and records how attempts ended."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from redis.exceptions import RedisError

from orchestrator.errors import StoreUnavailable
from orchestrator.group import Batch, RateLimit
from orchestrator.keys import new_token
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Claims, Client, Finish, connect, drop_connections, end_tasks, twin

log = get_logger("worker")

BLOCK_S = 2.0
RETRY_S = 0.5
LAST_CALLS_S = 8.0
MAX_WARM = 32

Call: TypeAlias = Callable[[str], Awaitable[Claims]]


class Wishes:
    """What a worker asks for with every claim.

    warm_keys: the affinity keys of what it has loaded, the most recent first; at most 32 are sent.
    """

    def __init__(
        self,
        limiter: RateLimit | None,
        batch: Batch | None,
        warm_keys: Callable[[], Sequence[str]] | None,
        affinity_patience_ms: int,
    ) -> None:
        self.slots = batch.size if batch else 1
        self._warm_keys = warm_keys
        self._fixed: dict[str, Any] = {}
        if limiter:
            self._fixed["limiter"] = [limiter.max_starts, limiter.duration_ms]
        if batch:
            self._fixed["batch"] = {"min_size": batch.min_size, "linger_ms": batch.linger_ms}
        if warm_keys:
            self._fixed["patience_ms"] = affinity_patience_ms

    def encode(self) -> bytes:
        """For the script; empty when there is nothing to ask for."""
        wishes = self._fixed
        if self._warm_keys and (warm := list(self._warm_keys())[:MAX_WARM]):
            wishes = wishes | {"warm": warm}
        return msgspec.json.encode(wishes) if wishes else b""


class Claimer:
    """Claims jobs in lanes: in each at most one call is in flight, so that a call sent again finds its answer."""

    def __init__(
        self,
        queue: Queue,
        blocking: Client,
        worker: str,
        lease_ms: int,
        interval_ms: int,
        stopping: asyncio.Event,
        wishes: Wishes,
    ) -> None:
        self.id = new_token()
        self._queue = queue
        self._blocking = blocking
        self._worker = worker
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self._stopping = stopping
        self._wishes = wishes
        self._looking = asyncio.Lock()
        self._calls = 0

    def is_looking(self) -> bool:
        """Whether a lane is idle and waits for a job."""
        return self._looking.locked()

    async def next_claims(self, lane: str) -> list[Claim]:
        """Wait for a job, or a batch; none when stopping.

        One idle lane looks at a time, the next when that one found something.
        """
        async with self._looking:
            while not self._stopping.is_set():
                claims = await self._call(lambda token: self._move_to_active(token, lane))
                if claims is None:
                    return []
                if claims.claims:
                    return claims.claims
                await self._sleep(claims.sleep_ms, is_deaf=claims.is_deaf)
        return []

    async def finish(self, lane: str, finishes: Sequence[Finish]) -> Claims | None:
        """Record the end of attempts and claim what comes next, for as long as that takes: no outage loses a result.

        None when stopping without Redis.
        """

        async def call(token: str) -> Claims:
            slots = 0 if self._stopping.is_set() else self._wishes.slots
            return await self._queue.scripts.move_to_finished(
                token,
                lane,
                self._worker,
                self._lease_ms,
                self._interval_ms,
                slots,
                finishes,
                self._wishes.encode(),
            )

        return await self._call(call)

    async def _move_to_active(self, token: str, lane: str) -> Claims:
        return await self._queue.scripts.move_to_active(
            token,
            lane,
            self._worker,
            self._lease_ms,
            self._interval_ms,
            self._wishes.slots,
            self._wishes.encode(),
        )

    async def _call(self, call: Call) -> Claims | None:
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

    async def _sleep(self, sleep_ms: int, *, is_deaf: bool) -> None:
        """Until woken by the marker, but never longer than `sleep_ms` or `BLOCK_S`: a lost marker costs only that.

        A deaf worker, at a limit of its own, leaves the marker to others.
        """
        if self._stopping.is_set():
            return
        block_s = BLOCK_S if sleep_ms < 0 else min(max(sleep_ms, 1) / 1000, BLOCK_S)
        woken = asyncio.create_task(asyncio.sleep(block_s) if is_deaf else self._read_marker(block_s))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([woken, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(woken, stopping)

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
