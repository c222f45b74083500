"""Clients of Redis as this package needs them, and the end of tasks that use them."""

import asyncio
from typing import Any, TypeAlias

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

Client: TypeAlias = Redis

CANCEL_AGAIN_S = 0.05


def connect(url: str, *, max_connections: int = 64, timeout_s: float | None = 5.0) -> Client:
    """A client for `redis://`, `rediss://` or `unix://`. A pool at its limit waits instead of failing.

    Sending again is left to `Scripts`, the only one who knows that it is safe. For blocking reads pass a
    `timeout_s` above the block.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=20,
        socket_timeout=timeout_s,
        socket_connect_timeout=3,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=15,
    )
    return Redis.from_pool(pool)


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks that talk to Redis until they have ended.

    redis-py sends through `asyncio.wait_for`, which on Python 3.11 may swallow a cancellation.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
