"""Takes jobs from a queue, runs them, and ends their attempts."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

from orchestrator.active_job import ActiveJob
from orchestrator.attempt import Attempt
from orchestrator.group import Batch, RateLimit
from orchestrator.job import check_int, clip
from orchestrator.log import get_logger
from orchestrator.presence import Info
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Client, Finish, end_tasks
from orchestrator.service import duties
from orchestrator.worker.batch import BatchProcessor, BatchRun
from orchestrator.worker.claimer import LAST_CALLS_S, Claimer, Wishes, blocking_twin
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
    limiter: at most so many starts by all workers of this name, besides the limits of the queue and of groups.
    batch: the processor gets a list of jobs of one `batch_key` and returns a list of results or exceptions; a job
        without a key comes alone. `concurrency` then counts batches.
    warm_keys: tells the affinity keys of what is loaded here; jobs that need one of them are preferred among those
        whose turn is near, but none is passed over for longer than `affinity_patience_ms`.
    info: what `Queue.get_workers` tells of it (device, model, VRAM …): a mapping, or a quick function that makes one.

    Source: BullMQ's Worker.
    """

    def __init__(
        self,
        queue: str,
        processor: "Processor | BatchProcessor",
        redis: "str | Client" = "redis://localhost:6379",
        *,
        concurrency: int = 1,
        lease_ms: int = 30_000,
        interval_ms: int = 1000,
        name: str | None = None,
        stop_grace_s: float = 30.0,
        cancel_grace_ms: int = 5000,
        progress_interval_ms: int = 100,
        limiter: RateLimit | None = None,
        batch: Batch | None = None,
        warm_keys: Callable[[], Sequence[str]] | None = None,
        affinity_patience_ms: int = 10_000,
        info: Info | None = None,
    ) -> None:
        check_int("concurrency", concurrency, 1, 10_000)
        check_int("lease_ms", lease_ms, 100, 86_400_000)
        check_int("interval_ms", interval_ms, 10, 60_000)
        check_int("affinity_patience_ms", affinity_patience_ms, 0, 3_600_000)
        if limiter:
            limiter.check("limiter")
        if batch:
            batch.check()
        self.name = clip(name or f"{socket.gethostname()}:{os.getpid()}", MAX_NAME_BYTES)
        self.queue = Queue(queue, redis)
        self._blocking = blocking_twin(self.queue.client if not isinstance(redis, str) else redis)
        self._processor = processor
        self._is_batch = batch is not None
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self._stop_grace_s = stop_grace_s
        self._cancel_grace_ms = cancel_grace_ms
        self._progress_interval_ms = progress_interval_ms
        self._attempts: dict[str, Attempt] = {}  # by lease: a job lost here may start again in another lane
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        wishes = Wishes(limiter, batch, warm_keys, affinity_patience_ms)
        self._claimer = Claimer(self.queue, self._blocking, self.name, lease_ms, interval_ms, self._stopping, wishes)
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
        """One job, or batch, after the other; finishing one and claiming the next is one call."""
        lane = f"{self._claimer.id}:{number}"
        claims: list[Claim] = []
        while claims or not self._stopping.is_set():
            if not claims:
                claims = await self._claimer.next_claims(lane)
                continue
            if self._stopping.is_set():  # they came with the last call
                finishes = [Finish(claim.job.id, claim.lease, "returned", b"{}") for claim in claims]
            else:
                finishes = await self._run_attempts(claims)
            claims = await self._finish(lane, finishes)

    async def _run_attempts(self, claims: list[Claim]) -> list[Finish]:
        jobs = [ActiveJob(claim, self.queue.scripts, self._progress_interval_ms) for claim in claims]
        batch = BatchRun(cast(BatchProcessor, self._processor), jobs) if self._is_batch else None
        processor = batch.part if batch else cast(Processor, self._processor)
        attempts = [Attempt(job, processor, self._cancel_grace_ms) for job in jobs]
        self._attempts |= {attempt.job.lease: attempt for attempt in attempts}
        try:
            return await asyncio.gather(*(attempt.run() for attempt in attempts))
        except asyncio.CancelledError:
            for attempt in attempts:
                attempt.task.cancel()
            raise
        finally:
            if batch:
                await batch.close()

    async def _finish(self, lane: str, finishes: list[Finish]) -> list[Claim]:
        claims = await self._claimer.finish(lane, finishes)
        for number, finish in enumerate(finishes):
            attempt = self._attempts.pop(finish.lease, None)
            if claims is None:
                log.error("job.unrecorded", job=finish.job_id, outcome=finish.outcome)
            elif attempt is not None:
                attempt.log_end(claims.outcomes[number])
        return claims.claims if claims else []
