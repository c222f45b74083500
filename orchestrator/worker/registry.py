"""Says every few seconds that a worker is there, and what it does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec
from redis.exceptions import RedisError

from orchestrator.errors import KargahError
from orchestrator.log import get_logger
from orchestrator.presence import MAX_JOB_IDS, Info, WorkerRecord, check_info, host_facts
from orchestrator.queue import Queue
from orchestrator.scripts import end_tasks
from orchestrator.worker.leases import Holding

log = get_logger("worker")

BEAT_S = 5.0
LEAVE_S = 1.0


class Registry:
    """Keeps a worker in its queue's list of workers: it vanishes from there 15 s after its last heartbeat.

    attempts: what it runs, by lease. info: what its user tells about it. Raises `InvalidOption` for an `info` that
    cannot be stored; what goes wrong later is logged, and the worker works on.
    """

    def __init__(
        self,
        queue: Queue,
        worker_id: str,
        name: str,
        concurrency: Callable[[], int],
        attempts: Mapping[str, Holding],
        info: Info | None = None,
    ) -> None:
        self._queue = queue
        self._attempts = attempts
        self._concurrency = concurrency
        self._info = info
        self._is_failing = False
        self._told = check_info(info)
        self._record = WorkerRecord(
            id=worker_id, name=name, queue=queue.name, concurrency=concurrency(), **host_facts()
        )

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """While inside, the worker is in the list."""
        beating = asyncio.create_task(self._beat_on(), name=f"heartbeat {self._record.name}")
        try:
            yield
        finally:
            await end_tasks(beating)
            await self._leave()

    async def _beat_on(self) -> None:
        while True:
            try:
                await self._queue.scripts.heartbeat(self._record.id, msgspec.json.encode(self._present()))
                self._is_failing = False
            except (KargahError, RedisError, OSError) as problem:
                if not self._is_failing:  # one line for an outage
                    log.warning("worker.heartbeat_failed", worker=self._record.name, problem=problem)
                self._is_failing = True
            except Exception:
                log.exception("worker.heartbeat_failed", worker=self._record.name)
            await asyncio.sleep(BEAT_S)

    def _present(self) -> WorkerRecord:
        if callable(self._info):
            try:
                self._told = check_info(self._info)
            except Exception as problem:  # the user's function; what it told last is better than no heartbeat
                log.warning("worker.info_failed", worker=self._record.name, problem=problem)
        job_ids = [attempt.job.id for attempt in self._attempts.values()]
        return msgspec.structs.replace(
            self._record,
            concurrency=self._concurrency(),
            active=len(job_ids),
            job_ids=tuple(job_ids[:MAX_JOB_IDS]),
            info=self._told,
        )

    async def _leave(self) -> None:
        with contextlib.suppress(KargahError, RedisError, OSError):  # else it vanishes by itself
            async with asyncio.timeout(LEAVE_S):
                await self._queue.scripts.heartbeat(self._record.id, b"")
