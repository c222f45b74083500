"""What a lane does: claim a job or a batch, run its attempts, record their ends with the next claim."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from orchestrator.active_job import ActiveJob
from orchestrator.attempt import Attempt
from orchestrator.endings import Endings, error_of
from orchestrator.job import JobError
from orchestrator.log import get_logger
from orchestrator.processors import Runner
from orchestrator.scripts import Claim, Claims, Finish, Scripts
from orchestrator.worker.batch import BatchProcessor, BatchRun
from orchestrator.worker.claimer import Claimer
from orchestrator.worker.leases import Leases
from orchestrator.worker.listeners import Listeners, What, WorkerEvent

log = get_logger("worker")


class JobRunner:
    """Runs attempts. `attempts` are those under way, by lease: a job lost here may start again in another lane."""

    def __init__(
        self,
        attempts: dict[str, Attempt],
        scripts: Scripts,
        claimer: Claimer,
        endings: Endings,
        listeners: Listeners,
        leases: Leases,
        processor: Runner | BatchProcessor,
        stopping: asyncio.Event,
        *,
        is_batch: bool,
        cancel_grace_ms: int,
        progress_interval_ms: int,
        max_started_attempts: int,
    ) -> None:
        self.attempts = attempts
        self._scripts = scripts
        self._leases = leases
        self._claimer = claimer
        self._endings = endings
        self._listeners = listeners
        self._processor = processor
        self._stopping = stopping
        self._is_batch = is_batch
        self._cancel_grace_ms = cancel_grace_ms
        self._progress_interval_ms = progress_interval_ms
        self._max_started_attempts = max_started_attempts

    async def work(self, lane: str, is_surplus: Callable[[], bool]) -> None:
        """One job, or batch, after the other; finishing one and claiming the next is one call."""
        claims: list[Claim] = []
        while claims or not (self._stopping.is_set() or is_surplus()):
            if not claims:
                claims = await self._claimer.next_claims(lane, lambda: not is_surplus())
                continue
            if self._stopping.is_set() or self._claimer.is_paused:  # they came with the last call
                finishes = [Finish(claim.job.id, claim.lease, "returned", b"{}") for claim in claims]
            else:
                finishes = await self._run(lane, await self._leases.still_held(claims, self._claimer.sent_at[lane]))
            claims = await self._finish(lane, finishes, and_claim=not is_surplus()) if finishes else []

    async def _run(self, lane: str, claims: list[Claim]) -> list[Finish]:
        jobs = [ActiveJob(claim, self._scripts, self._progress_interval_ms) for claim in claims]
        given_up = [self._given_up(job) for job in jobs if self._is_started_too_often(job)]
        jobs = [job for job in jobs if not self._is_started_too_often(job)]
        if not jobs:
            return given_up
        batch = BatchRun(cast(BatchProcessor, self._processor), jobs) if self._is_batch else None
        processor = batch.part if batch else cast(Runner, self._processor)
        attempts = [Attempt(job, processor, self._cancel_grace_ms, self._endings) for job in jobs]
        self.attempts |= {attempt.job.lease: attempt for attempt in attempts}
        for job in jobs:
            self._listeners.tell(WorkerEvent("active", job))
        try:
            return given_up + await self._ends(lane, attempts, batch)
        except asyncio.CancelledError:
            for attempt in attempts:
                attempt.task.cancel()
            raise
        finally:
            if batch:
                await batch.close()

    async def _ends(self, lane: str, attempts: list[Attempt], batch: BatchRun | None) -> list[Finish]:
        """How they ended, to be recorded; what left a batch that goes on is recorded here, and waits for none of it."""
        running = {asyncio.create_task(attempt.run()) for attempt in attempts}
        ended: list[Finish] = []
        pending = running
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                finishes = [run.result() for run in done]
                if pending and batch and batch.is_running:
                    await self._finish(lane, finishes, and_claim=False)
                else:
                    ended += finishes
        except BaseException:
            for run in running:
                run.cancel()
            raise
        return ended

    def _is_started_too_often(self, job: ActiveJob) -> bool:
        return 0 < self._max_started_attempts < job.attempt

    def _given_up(self, job: ActiveJob) -> Finish:
        text = f"it was started more often than max_started_attempts ({self._max_started_attempts}) allows"
        return self._endings.gave_up(job, JobError("poison", text))

    async def _finish(self, lane: str, finishes: list[Finish], *, and_claim: bool) -> list[Claim]:
        leftovers = self._leftovers(finishes)
        claims = await self._claimer.finish(lane, finishes, and_claim=and_claim and not leftovers)
        for number, finish in enumerate(finishes):
            self._end(finish, claims, number)
        for job_id, leftover in leftovers:
            await self._until_free(job_id, leftover)
        return claims.claims if claims else []

    def _leftovers(self, finishes: list[Finish]) -> list[tuple[str, asyncio.Future[Any]]]:
        """What goes on although its attempt has ended."""
        attempts = [(finish.job_id, self.attempts.get(finish.lease)) for finish in finishes]
        return [(job_id, attempt.leftover) for job_id, attempt in attempts if attempt and attempt.leftover]

    async def _until_free(self, job_id: str, leftover: asyncio.Future[Any]) -> None:
        """A thread cannot be ended from outside: until it ends by itself, its lane takes no other job."""
        log.warning("worker.slot_taken", job=job_id, hint="its thread did not stop when asked")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([leftover, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if leftover.done():
            log.info("worker.slot_free", job=job_id)

    def _end(self, finish: Finish, claims: Claims | None, number: int) -> None:
        attempt = self.attempts.pop(finish.lease, None)
        self._leases.let_go(finish.lease)
        if claims is None:
            log.error("job.unrecorded", job=finish.job_id, outcome=finish.outcome)
        elif attempt is not None:
            state = claims.outcomes[number]
            attempt.log_end(finish, state)
            what = cast(What, "lost" if state == "LEASE_LOST" else state)
            self._listeners.tell(WorkerEvent(what, attempt.job, error_of(finish), duration_ms=attempt.duration_ms))
