"""Keeps the leases of a worker's running jobs, and hears what was canceled."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from redis.exceptions import RedisError

from orchestrator.active_job import ActiveJob
from orchestrator.errors import KargahError
from orchestrator.job import CancelRequest
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import end_tasks, listen
from orchestrator.worker.claimer import RETRY_S

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
        self, queue: Queue, worker: str, attempts: Mapping[str, Holding], lease_ms: int, cancel_grace_ms: int
    ) -> None:
        self._queue = queue
        self._worker = worker
        self._attempts = attempts
        self._lease_ms = lease_ms
        self._cancel_grace_ms = cancel_grace_ms
        self._renew_soon = asyncio.Event()

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """While inside, renew and listen."""
        tasks = [asyncio.create_task(self._renew_in_time()), asyncio.create_task(self._listen_for_cancels())]
        try:
            yield
        finally:
            await end_tasks(*tasks)

    async def _renew_in_time(self) -> None:
        pause_s = min(self._lease_ms / 3000, 2.0)
        while True:
            self._renew_soon.clear()
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
        answers = await self._queue.scripts.extend_locks(self._lease_ms, 2 * self._cancel_grace_ms, held)
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
                async with listen(self._queue.client, self._queue.keys.control) as listener:
                    while True:
                        message = await listener.next_message()
                        if message is not None and self._runs(message.rpartition(b" ")[2]):
                            self._renew_soon.set()
            except (RedisError, KargahError, OSError):
                await asyncio.sleep(RETRY_S)

    def _runs(self, job_id: bytes) -> bool:
        return any(attempt.job.id.encode() == job_id for attempt in self._attempts.values())
