"""Takes jobs from a queue, runs them, and ends their attempts."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

from redis.exceptions import RedisError

from orchestrator.active_job import ActiveJob
from orchestrator.attempt import Attempt
from orchestrator.errors import KargahError, StoreUnavailable
from orchestrator.job import CancelRequest, check_int, clip
from orchestrator.keys import new_token
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Claims, Client, Finish, connect, end_tasks
from orchestrator.service import duties

log = get_logger("worker")

Processor: TypeAlias = Callable[[ActiveJob], Awaitable[Any]]

BLOCK_S = 2.0
RETRY_S = 0.5
LAST_CALLS_S = 8.0
MAX_NAME_BYTES = 256


class Worker:
    """Runs up to `concurrency` jobs of one queue at a time.

        async def paint(job: ActiveJob) -> dict[str, str]:
            await job.update_progress(50)
            return {"done": job.data["what"]}

        async with Worker("paint", paint, "redis://localhost"):
            await until_told_to_stop()

    What the processor returns is the job's result; what it raises decides what becomes of the attempt (see
    `orchestrator.errors.ProcessorError`; other exceptions count as transient). A job runs at least once: after
    a lost lease it may run again elsewhere, but only one attempt's end is ever recorded.

    lease_ms: how long a job is held without renewal; renewed every third of it, and at least every 2 s.
    interval_ms: how often this process looks for due and stalled jobs.
    stop_grace_s: how long `stop` lets running jobs go on before it hands them back.
    cancel_grace_ms: how long a processor may take to stop once its job is canceled or its time is over.

    Source: BullMQ's Worker.
    """

    def __init__(
        self,
        queue: str,
        processor: Processor,
        redis: "str | Client" = "redis://localhost:6379",
        *,
        concurrency: int = 1,
        lease_ms: int = 30_000,
        interval_ms: int = 1000,
        name: str | None = None,
        stop_grace_s: float = 30.0,
        cancel_grace_ms: int = 5000,
        progress_interval_ms: int = 100,
    ) -> None:
        check_int("concurrency", concurrency, 1, 10_000)
        check_int("lease_ms", lease_ms, 100, 86_400_000)
        check_int("interval_ms", interval_ms, 10, 60_000)
        self.name = clip(name or f"{socket.gethostname()}:{os.getpid()}", MAX_NAME_BYTES)
        self.queue = Queue(queue, redis)
        self._blocking = _blocking_twin(self.queue.client if not isinstance(redis, str) else redis)
        self._processor = processor
        self._id = new_token()
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self._stop_grace_s = stop_grace_s
        self._cancel_grace_ms = cancel_grace_ms
        self._progress_interval_ms = progress_interval_ms
        self._attempts: dict[str, Attempt] = {}  # by lease: a job lost here may start again in another lane
        self._calls = 0
        self._stopping = asyncio.Event()
        self._looking = asyncio.Lock()
        self._renew_soon = asyncio.Event()
        self._stopped = asyncio.Event()
        self._lanes: list[asyncio.Task[None]] = []
        self._runner: asyncio.Task[None] | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        self._runner = asyncio.create_task(self.run(), name=f"worker {self.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._runner is not None:
            await self._runner

    async def run(self) -> None:
        """Work until `stop` is called."""
        log.info("worker.started", worker=self.name, queue=self.queue.name, concurrency=self._concurrency)
        helpers = [asyncio.create_task(self._renew_leases()), asyncio.create_task(self._listen_for_cancels())]
        try:
            async with duties(self.queue, lease_ms=self._lease_ms, interval_ms=self._interval_ms):
                self._lanes = [asyncio.create_task(self._lane(number)) for number in range(self._concurrency)]
                await self._until_all_end()
        finally:
            await end_tasks(*helpers)
            await self._close()
            self._stopped.set()
            log.info("worker.stopped", worker=self.name, queue=self.queue.name)

    async def _until_all_end(self) -> None:
        try:
            await asyncio.wait(self._lanes, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            await end_tasks(*self._lanes)
            if cut_off := [attempt.task for attempt in self._attempts.values()]:
                await asyncio.wait(cut_off, timeout=self._cancel_grace_ms / 1000)
            ends = await asyncio.gather(*self._lanes, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def stop(self, grace_s: float | None = None) -> None:
        """Take no more jobs, let the running ones end for `grace_s`, hand the rest back, close.

        Handed-back jobs keep their place and lose no attempt. Returns when all is closed, also without Redis.
        """
        self._stopping.set()
        if not self._lanes:
            await self._close()
            return
        running = [attempt.task for attempt in self._attempts.values()]
        if running:
            await asyncio.wait(running, timeout=self._stop_grace_s if grace_s is None else grace_s)
        for attempt in self._attempts.values():
            attempt.hand_back()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_CALLS_S):
                await self._stopped.wait()
        await end_tasks(*self._lanes)  # Redis is away: what is not recorded now will be recovered by others
        await self._stopped.wait()

    async def _close(self) -> None:
        await self._blocking.aclose()
        await self.queue.close()

    # ── work ─────────────────────────────────────────────────────────────────────────────────────────

    async def _lane(self, number: int) -> None:
        """One job after the other; finishing one and claiming the next is one call."""
        lane = f"{self._id}:{number}"
        claim: Claim | None = None
        while claim is not None or not self._stopping.is_set():
            if claim is None:
                claim = await self._next_claim(lane)
                continue
            if self._stopping.is_set():  # it came with the last call
                finish = Finish(claim.job.id, claim.lease, "returned", b"{}")
            else:
                finish = await self._run_attempt(claim)
            claim = await self._finish(lane, finish)

    async def _next_claim(self, lane: str) -> Claim | None:
        """Wait for a job. One idle lane looks at a time: the next one follows when it found something."""
        async with self._looking:
            while not self._stopping.is_set():
                claims = await self._call(lambda token: self._move_to_active(token, lane))
                if claims is None:
                    return None
                if claims.claims:
                    return claims.claims[0]
                await self._sleep(claims.sleep_ms)
        return None

    async def _move_to_active(self, token: str, lane: str) -> Claims:
        return await self.queue.scripts.move_to_active(token, lane, self.name, self._lease_ms, self._interval_ms, 1)

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
            await self._blocking.bzpopmin(self.queue.keys.marker, block_s)
        except (RedisError, OSError):
            await asyncio.sleep(RETRY_S)

    async def _run_attempt(self, claim: Claim) -> Finish:
        job = ActiveJob(claim, self.queue.scripts, self._progress_interval_ms)
        attempt = Attempt(job, self._processor, self._cancel_grace_ms)
        self._attempts[job.lease] = attempt
        try:
            return await attempt.run()
        except asyncio.CancelledError:
            attempt.task.cancel()
            raise

    async def _finish(self, lane: str, finish: Finish) -> Claim | None:
        """Record the end of an attempt, for as long as that takes: a result is not lost to an outage."""

        async def call(token: str) -> Claims:
            slots = 0 if self._stopping.is_set() else 1
            return await self.queue.scripts.move_to_finished(
                token, lane, self.name, self._lease_ms, self._interval_ms, slots, [finish]
            )

        claims = await self._call(call)
        attempt = self._attempts.pop(finish.lease, None)
        if claims is None:
            log.error("job.unrecorded", job=finish.job_id, outcome=finish.outcome)
            return None
        if attempt is not None:
            attempt.log_end(claims.outcomes[0])
        return claims.claims[0] if claims.claims else None

    async def _call(self, call: Callable[[str], Awaitable[Claims]]) -> Claims | None:
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
                log.warning("worker.waiting_for_redis", worker=self.name, problem=problem)
            if self._stopping.is_set() and given_up_at is None:
                given_up_at = loop.time() + LAST_CALLS_S
            await asyncio.sleep(RETRY_S)

    # ── leases ───────────────────────────────────────────────────────────────────────────────────────

    async def _renew_leases(self) -> None:
        pause_s = min(self._lease_ms / 3000, 2.0)
        while True:
            self._renew_soon.clear()
            held = [(attempt.job.id, attempt.job.lease) for attempt in self._attempts.values()]
            if held:
                try:
                    await self._renew(held)
                except (KargahError, RedisError) as problem:
                    log.warning("worker.renewal_failed", worker=self.name, problem=problem)
                except Exception:  # without renewals the worker would claim jobs only to lose them
                    log.exception("worker.renewal_failed", worker=self.name)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._renew_soon.wait()

    async def _renew(self, held: list[tuple[str, str]]) -> None:
        scripts = self.queue.scripts
        answers = await scripts.extend_locks(self._lease_ms, 2 * self._cancel_grace_ms, held)
        for (_, lease), answer in zip(held, answers, strict=True):
            attempt = self._attempts.get(lease)
            if attempt is None:
                continue
            if answer is False:
                attempt.lose()
            elif isinstance(answer, CancelRequest):
                attempt.job.ask_to_stop(answer)

    async def _listen_for_cancels(self) -> None:
        """A hint that a job of ours was canceled; without it the next renewal tells."""
        while True:
            try:
                async with self.queue.client.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(self.queue.keys.control)
                    while True:
                        message = await channel.get_message(timeout=BLOCK_S)
                        if message is not None and self._runs(message["data"].rpartition(b" ")[2]):
                            self._renew_soon.set()
            except (RedisError, OSError):
                await asyncio.sleep(RETRY_S)

    def _runs(self, job_id: bytes) -> bool:
        return any(attempt.job.id.encode() == job_id for attempt in self._attempts.values())


def _blocking_twin(redis: "str | Client") -> Client:
    """A client of its own for blocking reads: they hold a connection, and outlast the usual socket timeout."""
    if isinstance(redis, str):
        return connect(redis, max_connections=2, timeout_s=BLOCK_S + 3)
    pool = redis.connection_pool
    kwargs = pool.connection_kwargs | {"socket_timeout": BLOCK_S + 3}
    twin = type(pool)(connection_class=pool.connection_class, max_connections=2, **kwargs)
    return type(redis).from_pool(twin)
