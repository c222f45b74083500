"""Takes jobs from a queue, runs them, and ends their attempts."""

import asyncio
import contextlib
import os
import socket
import time
from types import TracebackType
from typing import Any, Self

from orchestrator.active_job import ActiveJob
from orchestrator.attempt import Attempt
from orchestrator.errors import InvalidOption
from orchestrator.job import check_bool, check_int, clip
from orchestrator.log import get_logger
from orchestrator.processors import Processor, runner_of
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Client, Finish, end_tasks
from orchestrator.service import duties
from orchestrator.worker.claimer import LAST_CALLS_S, Claimer, blocking_twin
from orchestrator.worker.keeper import Keeper
from orchestrator.worker.leases import Leases

log = get_logger("worker")

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

    processor: an `async def` runs on the event loop, a plain function in a thread (it gets a `SyncJob`), a `Sandbox`
    in processes of its own; see `orchestrator.processors`.
    lease_ms: how long a job is held without renewal; renewed every third of it, and at least every 2 s.
    interval_ms: how often this process looks for due and stalled jobs.
    stop_grace_s: how long `stop` lets running jobs go on before it hands them back.
    cancel_grace_ms: how long a processor may take to stop once its job is canceled or its time is over.
    keeper: whether a small process renews the leases while a processor blocks this one; without use for a `Sandbox`.

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
        keeper: bool = True,
    ) -> None:
        check_int("concurrency", concurrency, 1, 10_000)
        check_int("lease_ms", lease_ms, 100, 86_400_000)
        check_int("interval_ms", interval_ms, 10, 60_000)
        check_bool("keeper", keeper)
        self.name = clip(name or f"{socket.gethostname()}:{os.getpid()}", MAX_NAME_BYTES)
        self.queue = Queue(queue, redis)
        self._blocking = blocking_twin(self.queue.client if not isinstance(redis, str) else redis)
        self._processor = runner_of(processor, cancel_grace_ms)
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self._stop_grace_s = stop_grace_s
        self._cancel_grace_ms = cancel_grace_ms
        self._progress_interval_ms = progress_interval_ms
        self._attempts: dict[str, Attempt] = {}  # by lease: a job lost here may start again in another lane
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        is_kept = keeper and not self._processor.has_own_process
        self._keeper = Keeper(self.queue.client, self.queue.keys, lease_ms, 2 * cancel_grace_ms) if is_kept else None
        self._claimer = Claimer(self.queue, self._blocking, self.name, lease_ms, interval_ms, self._stopping)
        if self._keeper is not None:
            self._claimer.under_way = self._keeper.calling
        self._leases = Leases(self.queue, self.name, self._attempts, lease_ms, cancel_grace_ms, self._keeper)
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
            await self._start_processor()
            async with self._leases.kept(), looking_after:
                self._lanes = [asyncio.create_task(self._lane(number)) for number in range(self._concurrency)]
                await self._until_all_end()
        finally:
            await self._close()
            self._stopped.set()
            log.info("worker.stopped", worker=self.name, queue=self.queue.name)

    async def _start_processor(self) -> None:
        try:
            await self._processor.start()
        except InvalidOption:
            if not self._stopping.is_set():  # else it is the stop that ended it
                raise

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
        if self._keeper is not None:
            self._keeper.close()
        await self._processor.stop()
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
            finish: Finish | None
            if self._stopping.is_set():  # it came with the last call
                finish = Finish(claim.job.id, claim.lease, "returned", b"{}")
            else:
                finish = await self._run_attempt(claim, self._claimer.sent_at[lane])
            claim = await self._finish(lane, finish) if finish is not None else None

    async def _run_attempt(self, claim: Claim, sent_at: float) -> Finish | None:
        """How it ended; None if its lease was lost before it could begin."""
        timeout_ms = claim.job.header.timeout_ms
        until = time.monotonic() + (timeout_ms + self._cancel_grace_ms) / 1000 if timeout_ms else 0.0
        if self._keeper is not None:
            self._keeper.hold(claim.job.id, claim.lease, sent_at, until)
        if not await self._leases.is_still_held(claim, sent_at):
            self._let_go(claim.lease)
            return None
        job = ActiveJob(claim, self.queue.scripts, self._progress_interval_ms)
        attempt = Attempt(job, self._processor, self._cancel_grace_ms)
        self._attempts[job.lease] = attempt
        try:
            return await attempt.run()
        except asyncio.CancelledError:
            attempt.task.cancel()
            raise

    async def _finish(self, lane: str, finish: Finish) -> Claim | None:
        attempt = self._attempts.get(finish.lease)
        leftover = attempt.leftover if attempt is not None else None
        claims = await self._claimer.finish(lane, finish, 0 if leftover is not None else 1)
        self._let_go(finish.lease)
        if claims is None:
            log.error("job.unrecorded", job=finish.job_id, outcome=finish.outcome)
            return None
        if attempt is not None:
            attempt.log_end(claims.outcomes[0])
        if leftover is not None:
            await self._until_free(finish.job_id, leftover)
        return claims.claims[0] if claims.claims else None

    def _let_go(self, lease: str) -> None:
        self._attempts.pop(lease, None)
        if self._keeper is not None:
            self._keeper.drop(lease)

    async def _until_free(self, job_id: str, leftover: asyncio.Future[Any]) -> None:
        """A thread cannot be ended from outside: until it ends by itself, its lane takes no other job."""
        log.warning("worker.slot_taken", worker=self.name, job=job_id, hint="its thread did not stop when asked")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([leftover, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if leftover.done():
            log.info("worker.slot_free", worker=self.name, job=job_id)
