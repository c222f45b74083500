"""Takes jobs from a queue, runs them, and ends their attempts."""

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

from orchestrator.active_job import ActiveJob
from orchestrator.attempt import Attempt
from orchestrator.endings import Endings, Strategy, error_of
from orchestrator.errors import WrongState
from orchestrator.job import JobError, KeepJobs, check_int, clip
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Client, Finish, end_tasks
from orchestrator.service import duties
from orchestrator.worker.claimer import LAST_CALLS_S, Claimer, blocking_twin
from orchestrator.worker.health import MAX_SILENT_S, Health, keep_rule
from orchestrator.worker.leases import Leases
from orchestrator.worker.listeners import Listener, Listeners, What, WorkerEvent
from orchestrator.worker.manual import ClaimedJob, Manual

__all__ = ["ClaimedJob", "Health", "Listener", "Processor", "Worker", "WorkerEvent"]

log = get_logger("worker")

Processor: TypeAlias = Callable[[ActiveJob], Awaitable[Any]]

MAX_NAME_BYTES = 256
MAX_CONCURRENCY = 10_000
END_S = 0.005


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
    processor: None = no job is claimed but by `get_next_job`.
    interval_ms: how often this process looks for due and stalled jobs.
    stop_grace_s: how long `stop` lets running jobs go on before it hands them back.
    cancel_grace_ms: how long a processor may take to stop once its job is canceled or its time is over.
    backoff_strategies: pauses for jobs whose `Backoff.type` names them; see `orchestrator.endings.Strategy`.
    keep_stack: whether `Job.stack` tells where a failed attempt failed.
    max_started_attempts: a job started more often in one run, for whatever reason, fails without running; 0 = no limit.
    remove_on_complete, remove_on_fail: for jobs that this worker ends and that do not say it themselves.

    Source: BullMQ's Worker.
    """

    def __init__(
        self,
        queue: str,
        processor: Processor | None,
        redis: "str | Client" = "redis://localhost:6379",
        *,
        concurrency: int = 1,
        lease_ms: int = 30_000,
        interval_ms: int = 1000,
        name: str | None = None,
        stop_grace_s: float = 30.0,
        cancel_grace_ms: int = 5000,
        progress_interval_ms: int = 100,
        backoff_strategies: Mapping[str, Strategy] | None = None,
        keep_stack: bool = True,
        max_started_attempts: int = 0,
        remove_on_complete: bool | int | KeepJobs | None = None,
        remove_on_fail: bool | int | KeepJobs | None = None,
    ) -> None:
        check_int("concurrency", concurrency, 1, MAX_CONCURRENCY)
        check_int("max_started_attempts", max_started_attempts, 0, 1_000_000)
        self._endings = Endings(backoff_strategies, keep_stack=keep_stack)
        keep = keep_rule(remove_on_complete, remove_on_fail)
        check_int("lease_ms", lease_ms, 100, 86_400_000)
        check_int("interval_ms", interval_ms, 10, 60_000)
        self.name = clip(name or f"{socket.gethostname()}:{os.getpid()}", MAX_NAME_BYTES)
        self.queue = Queue(queue, redis)
        self._blocking = blocking_twin(self.queue.client if not isinstance(redis, str) else redis)
        self._processor = processor
        self._concurrency = concurrency
        self._max_started_attempts = max_started_attempts
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self._stop_grace_s = stop_grace_s
        self._cancel_grace_ms = cancel_grace_ms
        self._progress_interval_ms = progress_interval_ms
        self._attempts: dict[str, Attempt] = {}  # by lease: a job lost here may start again in another lane
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._is_started = False
        self._listeners = Listeners()
        self._claimer = Claimer(
            self.queue, self._blocking, self.name, lease_ms, interval_ms, self._stopping, keep, self._tell_trouble
        )
        self._manual: Manual | None = None
        if processor is None:
            self._manual = Manual(
                self._claimer, self.queue.scripts, self._endings, lambda: self._concurrency, progress_interval_ms,
                self._stopping,
            )  # fmt: skip
        self._held = self._attempts if self._manual is None else self._manual.held
        self._leases = Leases(self.queue, self.name, self._held, lease_ms, cancel_grace_ms)
        self._lanes: dict[int, asyncio.Task[None]] = {}
        self._leaving: set[int] = set()
        self._lanes_changed = asyncio.Event()
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
        self._is_started = True
        looking_after = duties(self.queue, lease_ms=self._lease_ms, interval_ms=self._interval_ms)
        try:
            async with self._leases.kept(), looking_after:
                if self._manual is not None:
                    await self._stopping.wait()
                    await self._manual.close()
                else:
                    self._open_lanes()
                    await self._until_all_end()
        finally:
            await self._listeners.close(self._cancel_grace_ms / 1000)
            await self._close()
            self._stopped.set()
            log.info("worker.stopped", worker=self.name, queue=self.queue.name)

    async def _until_all_end(self) -> None:
        try:
            await self._until_one_fails()
        finally:
            lanes = tuple(self._lanes.values())
            await end_tasks(*lanes)
            if cut_off := [attempt.task for attempt in self._attempts.values()]:
                await asyncio.wait(cut_off, timeout=self._cancel_grace_ms / 1000)
            ends = await asyncio.gather(*lanes, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _until_one_fails(self) -> None:
        """Until all lanes have ended, or one failed; their number may change meanwhile."""
        while self._lanes:
            self._lanes_changed.clear()
            changed = asyncio.create_task(self._lanes_changed.wait())
            await asyncio.wait([*self._lanes.values(), changed], return_when=asyncio.FIRST_COMPLETED)
            await end_tasks(changed)
            for number, lane in tuple(self._lanes.items()):
                if lane.done() and (lane.cancelled() or lane.exception() is not None):
                    return
                if lane.done():
                    del self._lanes[number]
                    self._leaving.discard(number)

    def _open_lanes(self) -> None:
        while len(self._lanes) - len(self._leaving) < self._concurrency:
            number = next(number for number in itertools.count() if number not in self._lanes)
            self._lanes[number] = asyncio.create_task(self._lane(number))
        self._lanes_changed.set()

    def _leaves(self, number: int) -> bool:
        """Whether a lane is one too many; from the answer on it counts as gone."""
        if len(self._lanes) - len(self._leaving) > self._concurrency:
            self._leaving.add(number)
        return number in self._leaving

    async def stop(self, grace_s: float | None = None) -> None:
        """Take no more jobs, let the running ones end for `grace_s`, hand the rest back, close.

        Handed-back jobs keep their place and lose no attempt. Returns when all is closed, also without Redis.
        """
        self._stopping.set()
        if not self._is_started:
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
        await end_tasks(*self._lanes.values())  # Redis is away: what is not recorded now will be recovered by others
        await self._stopped.wait()

    async def close(self, *, force: bool = False) -> None:
        """`stop`, under BullMQ's name; `force` hands running jobs back at once, also while another stop waits."""
        await self.stop(0 if force else None)

    async def pause(self, *, wait: bool = True) -> None:
        """Take no more jobs, here only; with `wait`, return when the running ones have ended."""
        self._claimer.pause(is_paused=True)
        while wait and self._attempts:
            await asyncio.wait([attempt.task for attempt in self._attempts.values()])
            await asyncio.sleep(END_S)  # its end is being recorded

    def resume(self) -> None:
        """Take jobs again."""
        self._claimer.pause(is_paused=False)

    async def _close(self) -> None:
        await self._blocking.aclose()
        await self.queue.close()

    # ── what it is, and tells ────────────────────────────────────────────────────────────────────────

    @property
    def health(self) -> Health:
        """How it is now."""
        answered_at = self.queue.scripts.answered_at
        silent_s = None if answered_at is None else asyncio.get_running_loop().time() - answered_at
        is_connected = silent_s is not None and silent_s < MAX_SILENT_S
        return Health(self.is_running, self._claimer.is_paused, is_connected, silent_s, len(self._held))

    @property
    def is_running(self) -> bool:
        """From its start to the end of its stop; an outage of Redis does not end it."""
        return self._is_started and not self._stopped.is_set()

    @property
    def is_paused(self) -> bool:
        """Whether this worker is paused; the queue may be, too."""
        return self._claimer.is_paused

    @property
    def concurrency(self) -> int:
        """How many jobs run at once; may be set at any time. Fewer: running ones end first."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, concurrency: int) -> None:
        check_int("concurrency", concurrency, 1, MAX_CONCURRENCY)
        self._concurrency = concurrency
        self._claimer.look_again()
        if self._manual is not None:
            self._manual.look_again()
        elif self._lanes and not self._stopping.is_set():
            self._open_lanes()

    def on(self, what: What, listener: Listener) -> None:
        """Call `listener`, sync or async, when this worker takes a job, ends an attempt, or meets trouble.

        No job waits for it, and what it raises is logged. To hear of jobs of all workers, use a `Hub`.
        """
        self._listeners.add(what, listener)

    def _tell_trouble(self, problem: Exception) -> None:
        self._listeners.tell(WorkerEvent("error", problem=problem))

    # ── work ─────────────────────────────────────────────────────────────────────────────────────────

    async def get_next_job(self, timeout_s: float | None = None) -> ClaimedJob | None:
        """Claim a job by hand: on a worker without a processor, inside its context. Waits while `concurrency` are held.

        None when there was none in time, or the worker stops. What is not ended by then is handed back.

        Source: BullMQ's Worker.getNextJob.
        """
        if self._manual is None or (self._runner is None and not self._is_started):
            raise WrongState("get_next_job needs a worker without a processor, and its context to be entered")
        job = await self._manual.next_job(timeout_s)
        if job is not None:
            self._listeners.tell(WorkerEvent("active", job))
        return job

    async def _lane(self, number: int) -> None:
        """One job after the other; finishing one and claiming the next is one call."""
        lane = f"{self._claimer.id}:{number}"
        claim: Claim | None = None
        while claim is not None or not (self._stopping.is_set() or self._leaves(number)):
            if claim is None:
                claim = await self._claimer.next_claim(lane, lambda: not self._leaves(number))
                continue
            if self._stopping.is_set() or self._claimer.is_paused:  # it came with the last call
                finish = Finish(claim.job.id, claim.lease, "returned", b"{}")
            else:
                finish = await self._run_attempt(claim)
            claim = await self._finish(lane, finish, 0 if self._leaves(number) else 1)

    async def _run_attempt(self, claim: Claim) -> Finish:
        job = ActiveJob(claim, self.queue.scripts, self._progress_interval_ms)
        if 0 < self._max_started_attempts < job.attempt:
            text = f"it was started more often than max_started_attempts ({self._max_started_attempts}) allows"
            return self._endings.gave_up(job, JobError("poison", text))
        assert self._processor is not None
        attempt = Attempt(job, self._processor, self._cancel_grace_ms, self._endings)
        self._attempts[job.lease] = attempt
        self._listeners.tell(WorkerEvent("active", job))
        try:
            return await attempt.run()
        except asyncio.CancelledError:
            attempt.task.cancel()
            raise

    async def _finish(self, lane: str, finish: Finish, slots: int) -> Claim | None:
        claims = await self._claimer.finish(lane, finish, slots)
        attempt = self._attempts.pop(finish.lease, None)
        if claims is None:
            log.error("job.unrecorded", job=finish.job_id, outcome=finish.outcome)
            return None
        if attempt is not None:
            attempt.log_end(finish, claims.outcomes[0])
            what = cast(What, "lost" if claims.outcomes[0] == "LEASE_LOST" else claims.outcomes[0])
            self._listeners.tell(WorkerEvent(what, attempt.job, error_of(finish), duration_ms=attempt.duration_ms))
        return claims.claims[0] if claims.claims else None
