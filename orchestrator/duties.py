"""What has to be looked after in every queue: each duty does one bounded step when asked.

None needs a lease: a step is one atomic script that finds nothing when another process was faster, so any
number of processes may do the same duty, and the death of one of them holds nobody up.
"""

import asyncio
from typing import Protocol

from redis.exceptions import ResponseError

from orchestrator.embedded import check_server
from orchestrator.errors import InvalidOption
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.storage import Storage

log = get_logger("duties")

BATCH = 50  # a hundred due jobs were seen to take 8 ms, and no script may take over 5
ORPHAN_AGE_S = 24 * 3600


class Duty(Protocol):
    """One thing to look after."""

    interval_s: float
    """Pause between two steps without work."""

    async def step(self) -> bool:
        """Do a bounded piece; True when there may be more to do at once."""
        ...


class DueJobsPromoter:
    """Moves delayed jobs that are due to `waiting`, and fails jobs that had to start by now."""

    interval_s = 1.0

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def step(self) -> bool:
        return await self._queue.scripts.move_due_jobs(BATCH) >= BATCH


class StalledChecker:
    """Puts jobs of lost workers back into the queue, or fails those that were lost too often."""

    def __init__(self, queue: Queue, lease_ms: int = 30_000, interval_ms: int = 1000) -> None:
        self._queue = queue
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self.interval_s = interval_ms / 1000

    async def step(self) -> bool:
        recovered = await self._queue.scripts.move_stalled_to_wait(self._lease_ms, self._interval_ms, BATCH)
        return recovered >= BATCH


class ExpiredRemover:
    """Takes finished jobs whose retention has ended out of the sets; their keys went by TTL."""

    interval_s = 1.0

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def step(self) -> bool:
        return await self._queue.scripts.remove_expired(BATCH) >= BATCH


class ScheduleFiller:
    """Computes the next slots of schedules by cron, which no script can: time zones and changing clocks."""

    interval_s = 1.0

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def step(self) -> bool:
        hungry = await self._queue.scripts.get_hungry_schedules(BATCH)
        filled = 0
        for schedule in hungry:
            try:
                slots = await asyncio.to_thread(schedule.repeat.slots_after, schedule.known_to)
            except InvalidOption as problem:  # a time zone that only other machines know
                log.warning("schedule.not_filled", schedule=schedule.id, problem=problem)
                continue
            filled += await self._queue.scripts.fill_schedule(schedule.id, schedule.version, slots)
        return filled >= BATCH


class ServerInspector:
    """Says it, once and loudly, when the server may lose jobs: it is too old, or would delete some when it is full."""

    interval_s = 60.0

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._said = ""

    async def step(self) -> bool:
        try:
            await check_server(self._queue.client)
        except InvalidOption as problem:
            if problem.problem != self._said:
                log.error("server.unsafe", queue=self._queue.name, problem=problem.problem)
            self._said = problem.problem
        except ResponseError:  # not everybody may ask with INFO
            self.interval_s = 3600.0
        else:
            self._said = ""
        return False


class FileSweeper:
    """Deletes the files of jobs that are gone."""

    interval_s = 5.0

    def __init__(self, queue: Queue, storage: Storage) -> None:
        self._queue = queue
        self._storage = storage

    async def step(self) -> bool:
        paths = await self._queue.scripts.get_due_files(BATCH)
        removed = [path for path in paths if await _remove(self._storage, path)]
        await self._queue.scripts.forget_files(removed)
        return len(removed) >= BATCH


class OrphanSweeper:
    """Deletes files of attempts that no job adopted: their worker died between writing and finishing."""

    interval_s = 3600.0

    def __init__(self, queue: Queue, storage: Storage, older_than_s: float = ORPHAN_AGE_S) -> None:
        self._queue = queue
        self._storage = storage
        self._older_than_s = older_than_s

    async def step(self) -> bool:
        async for path in self._storage.list_attempts(self._older_than_s):
            if not await self._is_adopted(path):
                await _remove(self._storage, path)
        return False

    async def _is_adopted(self, path: str) -> bool:
        job_id, _, attempt_key = path.partition("/")
        try:
            job = await self._queue.get_job(job_id)
        except InvalidOption:
            return False
        return job is not None and job.attempt_key == attempt_key and job.state not in ("failed", "canceled")


async def _remove(storage: Storage, path: str) -> bool:
    """Whether the folder is gone. One that cannot be removed does not hold up the others."""
    try:
        await storage.remove_tree(path)
    except (InvalidOption, OSError) as problem:
        log.warning("files.not_removed", path=path, problem=problem)
        return False
    return True
