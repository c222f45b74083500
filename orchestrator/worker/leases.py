"""Keeps the leases of a worker's running jobs, and hears what was canceled."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping

from redis.exceptions import RedisError

from orchestrator.attempt import Attempt
from orchestrator.errors import KargahError
from orchestrator.job import CancelRequest
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, end_tasks
from orchestrator.worker.claimer import BLOCK_S, RETRY_S
from orchestrator.worker.keeper import Keeper

log = get_logger("worker")


class Leases:
    """Renews the leases of `attempts` (by lease) every third of their time, and at least every 2 s."""

    def __init__(
        self,
        queue: Queue,
        worker: str,
        attempts: Mapping[str, Attempt],
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

    async def is_still_held(self, claim: Claim, sent_at: float) -> bool:
        """Whether a claim is worth beginning: its answer may have waited in a socket for longer than the lease."""
        if time.monotonic() - sent_at < self._lease_ms / 2000:
            return True
        sent_at = time.monotonic()
        try:
            (answer,) = await self._extend([(claim.job.id, claim.lease)])
        except (KargahError, RedisError):
            return True  # the first report will tell
        if answer is False:
            log.warning("job.lost_before_its_start", worker=self._worker, job=claim.job.id)
        return answer is not False

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
                async with self._queue.client.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(self._queue.keys.control)
                    while True:
                        message = await channel.get_message(timeout=BLOCK_S)
                        if message is not None and self._runs(message["data"].rpartition(b" ")[2]):
                            self._renew_soon.set()
            except (RedisError, OSError):
                await asyncio.sleep(RETRY_S)

    def _runs(self, job_id: bytes) -> bool:
        return any(attempt.job.id.encode() == job_id for attempt in self._attempts.values())
