"""Runs what was claimed, and notes how it ended."""

import asyncio
import functools
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

from orchestrator.active_job import ActiveJob
from orchestrator.attempt import Attempt, OnEnd
from orchestrator.endings import Endings, error_of
from orchestrator.job import JobError
from orchestrator.log import get_logger
from orchestrator.processors import Runner
from orchestrator.scripts import Claim, Claims, Finish, Scripts
from orchestrator.telemetry import is_traced
from orchestrator.worker.batch import BatchProcessor, BatchRun
from orchestrator.worker.leases import Leases
from orchestrator.worker.listeners import Listeners, What

log = get_logger("worker")

MOST_BYTES = 1024 * 1024
"""Results to record in one call; it takes one at least."""


class JobRunner:
    """Runs attempts.

    attempts: those whose end is not recorded yet, by lease: a job lost here may start again in another slot.
    busy: slots that are taken: by an attempt, a batch, or a thread that goes on although its attempt has ended.
    ended: how attempts ended, to be recorded. on_change: called when there is something to record, or a slot is free.
    failed: fails when a processor raised what no attempt can end with.
    """

    def __init__(
        self,
        attempts: dict[str, Attempt],
        scripts: Scripts,
        endings: Endings,
        listeners: Listeners,
        leases: Leases,
        processor: Runner | BatchProcessor,
        *,
        is_batch: bool,
        cancel_grace_ms: int,
        progress_interval_ms: int,
        max_started_attempts: int,
    ) -> None:
        self.attempts = attempts
        self.busy = 0
        self.ended: deque[Finish] = deque()
        self.on_change = _do_nothing
        self._scripts = scripts
        self._leases = leases
        self._endings = endings
        self._listeners = listeners
        self._processor = processor
        self._is_batch = is_batch
        self._cancel_grace_ms = cancel_grace_ms
        self._progress_interval_ms = progress_interval_ms
        self._max_started_attempts = max_started_attempts
        self._closing: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] | None = None

    @property
    def failed(self) -> "asyncio.Future[None]":
        """Never done, unless a processor raised what no attempt can end with."""
        if self._failure is None:
            self._failure = asyncio.get_running_loop().create_future()
        return self._failure

    # ── what begins ──────────────────────────────────────────────────────────────────────────────────

    def begin(self, claims: Iterable[Claim]) -> None:
        """Start an attempt in a slot of its own for each; of a batch, all in one."""
        self._loop, self._is_traced = asyncio.get_running_loop(), is_traced()  # both cost more than they should
        jobs = []
        for claim in claims:
            job = ActiveJob(claim, self._scripts, self._progress_interval_ms)
            if 0 < self._max_started_attempts < job.attempt:
                self._note(self._given_up(job))
            else:
                jobs.append(job)
        if jobs and self._is_batch:
            self._begin_batch(jobs)
        elif jobs:
            self.busy += len(jobs)
            for job in jobs:
                self._begin(job, cast(Runner, self._processor), self._end_of_one)

    def give_back(self, claims: Iterable[Claim]) -> None:
        """They came too late to begin."""
        for claim in claims:
            self._note(Finish(claim.job.id, claim.lease, "returned", b"{}"))

    def _begin(self, job: ActiveJob, processor: Any, on_end: OnEnd) -> None:
        self.attempts[job.lease] = Attempt(
            job, processor, self._cancel_grace_ms, self._endings, on_end, self._loop, is_traced=self._is_traced
        )
        self._listeners.tell("active", job)

    def _begin_batch(self, jobs: list[ActiveJob]) -> None:
        self.busy += 1
        batch = BatchRun(cast(BatchProcessor, self._processor), jobs)
        on_end = functools.partial(self._end_of_part, batch, {job.lease for job in jobs})
        for job in jobs:
            self._begin(job, batch.part, on_end)

    def _given_up(self, job: ActiveJob) -> Finish:
        text = f"it was started more often than max_started_attempts ({self._max_started_attempts}) allows"
        return self._endings.gave_up(job, JobError("poison", text))

    # ── what ends ────────────────────────────────────────────────────────────────────────────────────

    def take_ended(self, most: int) -> list[Finish]:
        """What is to be recorded next."""
        taken: list[Finish] = []
        size = 0
        while self.ended and len(taken) < most and size < MOST_BYTES:
            taken.append(self.ended.popleft())
            size += len(taken[-1].content)
        return taken

    def note_recorded(self, finishes: list[Finish], claims: Claims | None) -> None:
        """They are recorded; None: they could not be, and the worker stops."""
        for number, finish in enumerate(finishes):
            attempt = self.attempts.pop(finish.lease, None)
            self._leases.let_go(finish.lease)
            if claims is None:
                log.error("job.unrecorded", job=finish.job_id, outcome=finish.outcome)
            elif attempt is not None:
                state, error = claims.outcomes[number], error_of(finish)
                attempt.log_end(error, state)
                what = cast(What, "lost" if state == "LEASE_LOST" else state)
                self._listeners.tell(what, attempt.job, error, duration_ms=attempt.duration_ms)

    def cut_off(self) -> list[asyncio.Task[Any]]:
        """Stop everything; nothing will be recorded. Returns what may take its time to stop."""
        for attempt in self.attempts.values():
            attempt.cut_off()
        for closing in self._closing:
            closing.cancel()
        return [*(attempt.task for attempt in self.attempts.values()), *self._closing]

    def _note(self, finish: Finish) -> None:
        self.ended.append(finish)
        if len(self.ended) == 1:
            self.on_change()

    def _end_of_one(self, attempt: Attempt, finish: Finish | BaseException) -> None:
        if attempt.leftover is None:
            self.busy -= 1
        else:  # a thread cannot be ended from outside: until it ends by itself, its slot takes no other job
            log.warning("worker.slot_taken", job=attempt.job.id, hint="its thread did not stop when asked")
            attempt.leftover.add_done_callback(functools.partial(self._slot_is_free, attempt.job.id))
        self._end(finish)

    def _end_of_part(self, batch: BatchRun, others: set[str], attempt: Attempt, finish: Finish | BaseException) -> None:
        others.discard(attempt.job.lease)
        if not others and batch.is_running:
            self._closing.add(closing := asyncio.create_task(batch.close()))
            closing.add_done_callback(self._batch_is_closed)
        elif not others:
            batch.forget()
            self.busy -= 1
        self._end(finish)

    def _end(self, finish: Finish | BaseException) -> None:
        if isinstance(finish, Finish):
            self._note(finish)
        elif not self.failed.done():
            self.failed.set_exception(finish)

    def _batch_is_closed(self, closing: "asyncio.Task[None]") -> None:
        self._closing.discard(closing)
        self.busy -= 1
        self.on_change()

    def _slot_is_free(self, job_id: str, leftover: "asyncio.Future[Any]") -> None:
        log.info("worker.slot_free", job=job_id)
        self.busy -= 1
        self.on_change()


def _do_nothing() -> None:
    """Nobody listens."""
