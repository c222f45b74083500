"""Takes jobs from a queue, runs them, and ends their attempts."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, cast

from orchestrator.attempt import Attempt
from orchestrator.endings import Endings, Strategy
from orchestrator.errors import InvalidOption, WrongState
from orchestrator.given import check_kind
from orchestrator.group import Batch, RateLimit
from orchestrator.job import KeepJobs, check_bool, check_int, check_number, clip
from orchestrator.log import get_logger
from orchestrator.presence import Info
from orchestrator.processors import Processor, Runner, is_async, runner_of
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from orchestrator.service import duties
from orchestrator.worker.batch import BatchProcessor
from orchestrator.worker.claimer import LAST_CALLS_S, Claimer, blocking_twin
from orchestrator.worker.health import MAX_SILENT_S, Health, keep_rule
from orchestrator.worker.keeper import Keeper
from orchestrator.worker.lanes import Lanes
from orchestrator.worker.leases import Holding, Leases
from orchestrator.worker.listeners import Listener, Listeners, What, WorkerEvent
from orchestrator.worker.manual import ClaimedJob, Manual
from orchestrator.worker.registry import Registry
from orchestrator.worker.running import JobRunner
from orchestrator.worker.wishes import Wishes

__all__ = ["BatchProcessor", "ClaimedJob", "Health", "Listener", "Processor", "Worker", "WorkerEvent"]

log = get_logger("worker")

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

    queue, processor, redis are all that most workers need. The others, each with a sensible default:

    What runs
        processor: an async function on the event loop; a plain one in threads; a `Sandbox` in processes of its own;
            None = no job is claimed but by `get_next_job`.
        concurrency: how many jobs (or batches) at once, 1 to 10,000; may be set while it runs.
        batch: the processor gets a list of jobs of one `batch_key`, and returns a list of results or exceptions; a
            job without a key comes alone.
        limiter: at most so many starts by all workers of this name, besides the limits of the queue and of groups.
        warm_keys: tells the affinity keys of what is loaded here; jobs that need one of them are preferred among
            those whose turn is near, but none is passed over for longer than `affinity_patience_ms`.

    How it holds its jobs
        lease_ms: how long a job is held without renewal, at least 100; renewed every third of it, and at least every
            2 s. A worker that dies is replaced after it.
        interval_ms: how often this process looks for due and stalled jobs, 10 to 60,000.
        keeper: whether a small process renews the leases while a processor blocks this one; without use for a
            `Sandbox`.

    How attempts end
        backoff_strategies: pauses for jobs whose `Backoff.type` names them; see `orchestrator.endings.Strategy`.
        max_started_attempts: a job started more often in one run, for whatever reason, fails without running;
            0 = no limit.
        remove_on_complete, remove_on_fail: for jobs that this worker ends and that do not say it themselves.
        keep_stack: whether `Job.stack` tells where a failed attempt failed.
        progress_interval_ms: least distance between two progress events of a job.

    How it stops
        stop_grace_s: how long `stop` lets running jobs go on before it hands them back.
        cancel_grace_ms: how long a processor may take to stop once its job is canceled or its time is over.

    Who it is
        name: what jobs and events call it, up to 256 bytes; the host and the process unless given.
        info: what `Queue.get_workers` tells of it (device, model, VRAM …): a mapping, or a quick function that makes
            one.

    Source: BullMQ's Worker.
    """

    def __init__(
        self,
        queue: str,
        processor: Processor | BatchProcessor | None,
        redis: "str | Client" = "redis://localhost:6379",
        *,
        concurrency: int = 1,
        batch: Batch | None = None,
        limiter: RateLimit | None = None,
        warm_keys: Callable[[], Sequence[str]] | None = None,
        affinity_patience_ms: int = 10_000,
        lease_ms: int = 30_000,
        interval_ms: int = 1000,
        keeper: bool = True,
        backoff_strategies: Mapping[str, Strategy] | None = None,
        max_started_attempts: int = 0,
        remove_on_complete: bool | int | KeepJobs | None = None,
        remove_on_fail: bool | int | KeepJobs | None = None,
        keep_stack: bool = True,
        progress_interval_ms: int = 100,
        stop_grace_s: float = 30.0,
        cancel_grace_ms: int = 5000,
        name: str | None = None,
        info: Info | None = None,
    ) -> None:
        check_int("concurrency", concurrency, 1, MAX_CONCURRENCY)
        check_int("max_started_attempts", max_started_attempts, 0, 1_000_000)
        check_int("lease_ms", lease_ms, 100, 86_400_000)
        check_int("interval_ms", interval_ms, 10, 60_000)
        check_number("stop_grace_s", stop_grace_s, 0, 86_400)
        check_int("cancel_grace_ms", cancel_grace_ms, 0, 86_400_000)
        check_int("progress_interval_ms", progress_interval_ms, 0, 86_400_000)
        check_bool("keep_stack", keep_stack)
        check_bool("keeper", keeper)
        check_kind("name", name, str)
        endings = Endings(backoff_strategies, keep_stack=keep_stack)
        keep = keep_rule(remove_on_complete, remove_on_fail)
        wishes = Wishes(limiter, batch, warm_keys, affinity_patience_ms)
        self.name = clip(name or f"{socket.gethostname()}:{os.getpid()}", MAX_NAME_BYTES)
        self.queue = Queue(queue, redis)
        self._blocking = blocking_twin(self.queue.client if not isinstance(redis, str) else redis)
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self._stop_grace_s = stop_grace_s
        self._cancel_grace_ms = cancel_grace_ms
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._is_started = False
        self._listeners = Listeners()
        self._claimer = Claimer(
            self.queue,
            self._blocking,
            self.name,
            lease_ms,
            interval_ms,
            self._stopping,
            wishes,
            keep,
            self._tell_trouble,
        )
        self._processor = _runner_of(processor, batch, cancel_grace_ms)
        self._keeper = None
        if keeper and processor is not None and not (self._processor and self._processor.has_own_process):
            self._keeper = Keeper(self.queue.client, self.queue.keys, lease_ms, 2 * cancel_grace_ms)
            self._claimer.under_way = self._keeper.calling
        self._attempts: dict[str, Attempt] = {}
        self._manual: Manual | None = None
        if processor is None:
            self._manual = Manual(
                self._claimer,
                self.queue.scripts,
                endings,
                lambda: self._concurrency,
                progress_interval_ms,
                self._stopping,
            )
        self._held: Mapping[str, Holding] = self._attempts if self._manual is None else self._manual.held
        self._leases = Leases(self.queue, self.name, self._held, lease_ms, cancel_grace_ms, self._keeper)
        self._runner = JobRunner(
            self._attempts,
            self.queue.scripts,
            endings,
            self._listeners,
            self._leases,
            self._processor or cast(BatchProcessor, processor),
            is_batch=batch is not None,
            cancel_grace_ms=cancel_grace_ms,
            progress_interval_ms=progress_interval_ms,
            max_started_attempts=max_started_attempts,
        )
        self._lanes = Lanes(self._claimer, self._runner, self._leases, self._stopping, lambda: self._concurrency)
        self._registry = Registry(self.queue, self._claimer.id, self.name, lambda: self._concurrency, self._held, info)
        self._task: asyncio.Task[None] | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name=f"worker {self.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._task is not None:
            await self._task

    async def run(self) -> None:
        """Work until `stop` is called."""
        log.info("worker.started", worker=self.name, queue=self.queue.name, concurrency=self._concurrency)
        self._is_started = True
        looking_after = duties(self.queue, lease_ms=self._lease_ms, interval_ms=self._interval_ms)
        try:
            await self._start_processor()
            async with self._leases.kept(), looking_after, self._registry.kept():
                if self._manual is not None:
                    await self._stopping.wait()
                    await self._manual.close()
                else:
                    await self._until_all_end()
        finally:
            await self._listeners.close(self._cancel_grace_ms / 1000)
            await self._close()
            self._stopped.set()
            log.info("worker.stopped", worker=self.name, queue=self.queue.name)

    async def _start_processor(self) -> None:
        try:
            if self._processor is not None:
                await self._processor.start()
        except InvalidOption:
            if not self._stopping.is_set():  # else it is the stop that ended it
                raise

    async def _until_all_end(self) -> None:
        try:
            await self._lanes.work()
        finally:
            await self._lanes.cut_off()
            if cut_off := self._runner.cut_off():
                await asyncio.wait(cut_off, timeout=self._cancel_grace_ms / 1000)

    async def stop(self, grace_s: float | None = None) -> None:
        """Take no more jobs, let the running ones end for `grace_s`, hand the rest back, close.

        Handed-back jobs keep their place and lose no attempt. Returns when all is closed, also without Redis.
        """
        self._stopping.set()
        if not self._is_started:
            await self._close()
            return
        self._look_again()
        running = [attempt.task for attempt in self._attempts.values()]
        if running:
            await asyncio.wait(running, timeout=self._stop_grace_s if grace_s is None else grace_s)
        for attempt in self._attempts.values():
            attempt.hand_back()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_CALLS_S):
                await self._stopped.wait()
        await self._lanes.cut_off()  # Redis is away: what is not recorded now will be recovered by others
        await self._stopped.wait()

    async def close(self, *, force: bool = False) -> None:
        """`stop`, under BullMQ's name; `force` hands running jobs back at once, also while another stop waits."""
        await self.stop(0 if force else None)

    async def pause(self, *, wait: bool = True) -> None:
        """Take no more jobs, here only; with `wait`, return when the running ones have ended."""
        self._claimer.is_paused = True
        self._look_again()
        while wait and self._attempts:
            await asyncio.wait([attempt.task for attempt in self._attempts.values()])
            await asyncio.sleep(END_S)  # its end is being recorded

    def resume(self) -> None:
        """Take jobs again."""
        self._claimer.is_paused = False
        self._look_again()

    async def _close(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
        if self._processor is not None:
            await self._processor.stop()
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
        self._look_again()

    def on(self, what: What, listener: Listener) -> None:
        """Call `listener`, sync or async, when this worker takes a job, ends an attempt, or meets trouble.

        No job waits for it, and what it raises is logged. To hear of jobs of all workers, use a `Hub`.
        """
        self._listeners.add(what, listener)

    def _tell_trouble(self, problem: Exception) -> None:
        self._listeners.tell("error", problem=problem)

    def _look_again(self) -> None:
        """Something was said to this worker that whoever waits should know."""
        self._claimer.look_again()
        (self._lanes if self._manual is None else self._manual).look_again()

    # ── work ─────────────────────────────────────────────────────────────────────────────────────────

    async def get_next_job(self, timeout_s: float | None = None) -> ClaimedJob | None:
        """Claim a job by hand: on a worker without a processor, inside its context. Waits while `concurrency` are held.

        None when there was none in time, or the worker stops. What is not ended by then is handed back.

        Source: BullMQ's Worker.getNextJob.
        """
        if self._manual is None or (self._task is None and not self._is_started):
            raise WrongState("get_next_job needs a worker without a processor, and its context to be entered")
        job = await self._manual.next_job(timeout_s)
        if job is not None:
            self._listeners.tell("active", job)
        return job


def _runner_of(
    processor: Processor | BatchProcessor | None, batch: Batch | None, cancel_grace_ms: int
) -> Runner | None:
    """How single jobs are run; a batch processor, which is an async function, is called as it is."""
    if batch is not None and not is_async(processor):
        raise InvalidOption("processor", "must be an async function where there is a batch")
    if processor is None or batch is not None:
        return None
    return runner_of(cast(Processor, processor), cancel_grace_ms)
