"""Takes jobs from a queue, runs them, and ends their attempts."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

from orchestrator.active_job import ActiveJob
from orchestrator.attempt import Attempt
from orchestrator.job import check_int, clip
from orchestrator.log import get_logger
from orchestrator.presence import Info
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Client, Finish, end_tasks
from orchestrator.service import duties
from orchestrator.worker.claimer import LAST_CALLS_S, Claimer, blocking_twin
from orchestrator.worker.leases import Leases
from orchestrator.worker.registry import Registry

log = get_logger("worker")

Processor: TypeAlias = Callable[[ActiveJob], Awaitable[Any]]

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
    info: what `Queue.get_workers` tells of it (device, model, VRAM …): a mapping, or a quick function that makes one.

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
        info: Info | None = None,
    ) -> None:
        check_int("concurrency", concurrency, 1, 10_000)
        check_int("lease_ms", lease_ms, 100, 86_400_000)
        check_int("interval_ms", interval_ms, 10, 60_000)
        self.name = clip(name or f"{socket.gethostname()}:{os.getpid()}", MAX_NAME_BYTES)
        self.queue = Queue(queue, redis)
        self._blocking = blocking_twin(self.queue.client if not isinstance(redis, str) else redis)
        self._processor = processor
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self._stop_grace_s = stop_grace_s
        self._cancel_grace_ms = cancel_grace_ms
        self._progress_interval_ms = progress_interval_ms
        self._attempts: dict[str, Attempt] = {}  # by lease: a job lost here may start again in another lane
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._claimer = Claimer(self.queue, self._blocking, self.name, lease_ms, interval_ms, self._stopping)
        self._leases = Leases(self.queue, self.name, self._attempts, lease_ms, cancel_grace_ms)
        self._registry = Registry(self.queue, self._claimer.id, self.name, concurrency, self._attempts, info)
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
        looking_after = duties(self.queue, lease_ms=self._lease_ms, interval_ms=self._interval_ms)
        try:
            async with self._leases.kept(), looking_after, self._registry.kept():
                self._lanes = [asyncio.create_task(self._lane(number)) for number in range(self._concurrency)]
                await self._until_all_end()
        finally:
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
        lane = f"{self._claimer.id}:{number}"
        claim: Claim | None = None
        while claim is not None or not self._stopping.is_set():
            if claim is None:
                claim = await self._claimer.next_claim(lane)
                continue
            if self._stopping.is_set():  # it came with the last call
                finish = Finish(claim.job.id, claim.lease, "returned", b"{}")
            else:
                finish = await self._run_attempt(claim)
            claim = await self._finish(lane, finish)

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
        claims = await self._claimer.finish(lane, finish)
        attempt = self._attempts.pop(finish.lease, None)
        if claims is None:
            log.error("job.unrecorded", job=finish.job_id, outcome=finish.outcome)
            return None
        if attempt is not None:
            attempt.log_end(claims.outcomes[0])
        return claims.claims[0] if claims.claims else None
