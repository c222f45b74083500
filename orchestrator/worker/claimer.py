"""A worker's claims: waits for jobs, takes them, and records how attempts ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from redis.exceptions import RedisError

from orchestrator.errors import StoreUnavailable
from orchestrator.keys import new_token
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Claims, Client, Finish, connect, drop_connections, end_tasks, twin
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
        self._changed = asyncio.Event()
        self._calls = 0

    def is_looking(self) -> bool:
        """Whether a lane is idle and waits for a job."""
        return self.looking.locked()

    def pause(self, *, is_paused: bool) -> None:
        """Claim nothing from now on, or go on."""
        self.is_paused = is_paused
        self.look_again()

    def look_again(self) -> None:
        """Something changed that a sleeping lane should know."""
        self._changed.set()

    async def next_claims(self, lane: str, is_wanted: Callable[[], bool] = lambda: True) -> list[Claim]:
        """Wait for a job, or a batch; none when stopping, or when the lane is not wanted any more.

        One idle lane looks at a time, the next when that one found something.
        """
        async with self.looking:
            while not self._stopping.is_set() and is_wanted():
                if self.is_paused:
                    await self.sleep(-1)
                    continue
                claims = await self.claim(lane)
                if claims is None:
                    return []
                if claims.claims:
                    return claims.claims
                await self.sleep(claims.sleep_ms, is_deaf=claims.is_deaf)
        return []

    async def claim(self, lane: str) -> Claims | None:
        """Ask for a job once, until that is answered; None when stopping without Redis."""
        return await self._call(lambda token: self._move_to_active(token, lane), lane)

    async def finish(self, lane: str, finishes: Sequence[Finish], *, and_claim: bool = True) -> Claims | None:
        """Record the end of attempts and claim what comes next, for as long as that takes: no outage loses a result.

        None when stopping without Redis.
        """

        async def call(token: str) -> Claims:
            slots = self._wishes.slots if and_claim and not (self._stopping.is_set() or self.is_paused) else 0
            return await self._queue.scripts.move_to_finished(
                token,
                lane,
                self._worker,
                self._lease_ms,
                self._interval_ms,
                slots,
                finishes,
                self._wishes.encode(),
                self._keep,
            )

        return await self._call(call, lane)

    async def _move_to_active(self, token: str, lane: str) -> Claims:
        wishes = self._wishes
        return await self._queue.scripts.move_to_active(
            token, lane, self._worker, self._lease_ms, self._interval_ms, wishes.slots, wishes.encode()
        )

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
        self._changed.clear()
        block_s = BLOCK_S if sleep_ms < 0 else min(max(sleep_ms, 1) / 1000, BLOCK_S)
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(event.wait()) for event in (self._stopping, self._changed)
        ]
        if not self.is_paused:
            tasks.append(asyncio.create_task(asyncio.sleep(block_s) if is_deaf else self._read_marker(block_s)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(*tasks)

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
