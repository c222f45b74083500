"""Keeps the duties of a queue going beside other work."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from redis.exceptions import RedisError

from orchestrator.duties import (
    DueJobsPromoter,
    Duty,
    ExpiredRemover,
    FileSweeper,
    OrphanSweeper,
    ScheduleFiller,
    ServerInspector,
    StalledChecker,
)
from orchestrator.errors import KargahError
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import end_tasks
from orchestrator.storage import Storage

log = get_logger("duties")

PAUSE_AFTER_ERROR_S = 5.0


def duties_of(queue: Queue, storage: Storage | None, lease_ms: int, interval_ms: int) -> list[Duty]:
    """All duties of a queue; those with files only where there is a storage."""
    duties: list[Duty] = [
        DueJobsPromoter(queue),
        StalledChecker(queue, lease_ms, interval_ms),
        ExpiredRemover(queue),
        ScheduleFiller(queue),
        ServerInspector(queue),
    ]
    if storage is not None:
        duties += [FileSweeper(queue, storage), OrphanSweeper(queue, storage)]
    return duties


@contextlib.asynccontextmanager
async def duties(
    queue: Queue, *, storage: Storage | None = None, lease_ms: int = 30_000, interval_ms: int = 1000
) -> AsyncIterator[None]:
    """While inside, do the duties of `queue`; an outage of Redis only pauses them."""
    async with run(duties_of(queue, storage, lease_ms, interval_ms)):
        yield


@contextlib.asynccontextmanager
async def run(duties: Sequence[Duty]) -> AsyncIterator[None]:
    """While inside, do `duties`, each at its own pace."""
    tasks = [asyncio.create_task(_go_on(duty), name=type(duty).__name__) for duty in duties]
    try:
        yield
    finally:
        await end_tasks(*tasks)


async def _go_on(duty: Duty) -> None:
    while True:
        pause_s = duty.interval_s
        try:
            if await duty.step():
                pause_s = 0
        except (KargahError, RedisError, OSError) as problem:
            pause_s = max(pause_s, PAUSE_AFTER_ERROR_S)
            log.warning("duty.failed", duty=type(duty).__name__, problem=problem)
        except Exception:
            pause_s = max(pause_s, PAUSE_AFTER_ERROR_S)
            log.exception("duty.failed", duty=type(duty).__name__)
        await asyncio.sleep(pause_s)
