"""Keeps the leases of a worker's running jobs, and hears what was canceled."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from redis.exceptions import RedisError

from orchestrator.active_job import ActiveJob
from orchestrator.errors import KargahError
from orchestrator.job import CancelRequest
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, end_tasks, listen
from orchestrator.worker.claimer import RETRY_S
from orchestrator.worker.keeper import Keeper

log = get_logger("worker")


class Holding(Protocol):
    """A job that this worker holds."""

    @property
    def job(self) -> ActiveJob:
        """The job."""
        ...

    def lose(self) -> None:
        """The lease is gone."""
        ...


class Leases:
    """Renews the leases of `attempts` (by lease) every third of their time, and at least every 2 s."""

    def __init__(
        self,
        queue: Queue,
        worker: str,
        attempts: Mapping[str, Holding],
        lease_ms: int,
        cancel_grace_ms: int,
        keeper: Keeper | None = None,
    ) -> None:
        self._queue = queue
        self._worker = worker
        self._attempts = attempts
        self._lease_ms = lease_ms
        self._cancel_grace_ms = cancel_grace_ms
        self._keeper = keeper
        self._renew_soon = asyncio.Event()

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """While inside, renew and listen."""
        tasks = [asyncio.create_task(self._renew_in_time()), asyncio.create_task(self._listen_for_cancels())]
        try:
            yield
        finally:
            await end_tasks(*tasks)

    async def still_held(self, claims: list[Claim], sent_at: float) -> list[Claim]:
        """Those that are worth beginning: their answer may have waited in a socket for longer than the lease.

        From now on their leases are kept, also while the event loop is held up, until `let_go`.
        """
        for claim in claims:
            self._hold(claim, sent_at)
        if time.monotonic() - sent_at < self._lease_ms / 2000:
            return claims
        try:
            answers = await self._extend([(claim.job.id, claim.lease) for claim in claims])
        except (KargahError, RedisError):
            return claims  # the first report will tell
        for claim, answer in zip(claims, answers, strict=True):
            if answer is False:
                log.warning("job.lost_before_its_start", worker=self._worker, job=claim.job.id)
                self.let_go(claim.lease)
        return [claim for claim, answer in zip(claims, answers, strict=True) if answer is not False]

    def let_go(self, lease: str) -> None:
        """The job's end is recorded."""
        if self._keeper is not None:
            self._keeper.drop(lease)

    def _hold(self, claim: Claim, sent_at: float) -> None:
        if self._keeper is not None:
            timeout_ms = claim.job.header.timeout_ms
            until = time.monotonic() + (timeout_ms + self._cancel_grace_ms) / 1000 if timeout_ms else 0.0
            self._keeper.hold(claim.job.id, claim.lease, sent_at, until)

    async def _renew_in_time(self) -> None:
        pause_s = min(self._lease_ms / 3000, 2.0)
        while True:
            self._renew_soon.clear()
            if self._keeper is not None:
                self._keeper.look_after()
            held = [(attempt.job.id, attempt.job.lease) for attempt in self._attempts.values()]
            if held:
                try:
                    await self._renew(held)
                except (KargahError, RedisError) as problem:
                    log.warning("worker.renewal_failed", worker=self._worker, problem=problem)
                except Exception:  # without renewals the worker would claim jobs only to lose them
                    log.exception("worker.renewal_failed", worker=self._worker)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._renew_soon.wait()

    async def _renew(self, held: list[tuple[str, str]]) -> None:
        sent_at = time.monotonic()
        answers = await self._extend(held)
        for (_, lease), answer in zip(held, answers, strict=True):
            attempt = self._attempts.get(lease)
            if attempt is None:
                continue
            if answer is False:
                attempt.lose()
                continue
            if self._keeper is not None:
                self._keeper.renewed(lease, sent_at)
            if isinstance(answer, CancelRequest):
                attempt.job.ask_to_stop(answer)

    async def _extend(self, held: list[tuple[str, str]]) -> list[CancelRequest | bool]:
        return await self._queue.scripts.extend_locks(self._lease_ms, 2 * self._cancel_grace_ms, held)

    async def _listen_for_cancels(self) -> None:
        """A hint that a job of ours was canceled; without it the next renewal tells."""
        while True:
            try:
                async with listen(self._queue.client, self._queue.keys.control) as listener:
                    while True:
                        message = await listener.next_message()
                        if message is not None and self._runs(message.rpartition(b" ")[2]):
                            self._renew_soon.set()
            except (RedisError, KargahError, OSError):
                await asyncio.sleep(RETRY_S)

    def _runs(self, job_id: bytes) -> bool:
        return any(attempt.job.id.encode() == job_id for attempt in self._attempts.values())
