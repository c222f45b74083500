"""Clients of Redis as this package needs them, and the end of tasks that use them."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, TypeAlias

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from orchestrator.errors import InvalidOption
from orchestrator.scripts.cluster import SCHEMES, ClusterClient
from orchestrator.scripts.node import NodeClient, NodePool

Client: TypeAlias = Redis

CANCEL_AGAIN_S = 0.05


def connect(url: str, *, max_connections: int = 64, timeout_s: float | None = 5.0) -> Client:
    """A client for `redis://`, `rediss://`, `unix://`, or a cluster: `redis+cluster://host:port[,host:port …]`.

    A pool at its limit waits instead of failing. Sending again is left to `Scripts`, the only one who knows that it is
    safe. For blocking reads pass a `timeout_s` above the block. Of a cluster any nodes may be named, best several.
    """
    options: dict[str, Any] = {
        "max_connections": max_connections,
        "timeout": 20,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": 3,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 15,
    }
    if url.startswith(SCHEMES):
        return ClusterClient(url, **options)
    try:
        return NodeClient.from_pool(NodePool.from_url(url, **options))
    except ValueError as problem:
        raise InvalidOption("redis", f"is no URL of a Redis: {problem}") from None


def check_client(redis: object) -> Client:
    """The client itself. Raises `InvalidOption` for what is none, or none that this package can use."""
    if not isinstance(redis, Redis):
        raise InvalidOption("redis", f"must be a URL, or a client of redis.asyncio, not {type(redis).__name__}")
    if not isinstance(redis, ClusterClient) and redis.connection_pool.connection_kwargs.get("decode_responses"):
        raise InvalidOption("redis", "must not decode its answers: decode_responses=True cannot carry pictures")
    return redis


def twin(client: Client, *, max_connections: int, timeout_s: float) -> Client:
    """A client of the same server or cluster with connections of its own."""
    if isinstance(client, ClusterClient):
        return ClusterClient(client.url, **client.options | _limits(max_connections, timeout_s))
    pool = client.connection_pool
    options = pool.connection_kwargs | _limits(max_connections, timeout_s)
    return type(client).from_pool(type(pool)(connection_class=pool.connection_class, **options))


async def node_of(client: Client, key: str) -> Client:
    """The client itself, or of a cluster the one of the node that has `key` now: where to subscribe."""
    return await client.find_node(key) if isinstance(client, ClusterClient) else client


async def send_together(client: Client, key: str, *commands: Sequence[Any]) -> list[Any]:
    """The answers to commands that concern one key, or its slot, sent in one packet: when one blocks, the next waits.

    One try. After an error, or a cancellation, the connection is closed: what was not begun by then never is.
    """
    node: Any = await client.guess_node(key) if isinstance(client, ClusterClient) else client
    connection = await node.connection_pool.get_connection()
    try:
        await connection.send_packed_command(connection.pack_commands(commands))
        return [await connection.read_response() for _ in commands]
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    finally:
        await node.connection_pool.release(connection)


async def drop_connections(client: Client) -> None:
    """Let the next calls make new connections: the server behind these is a primary no more."""
    if isinstance(client, NodeClient | ClusterClient):
        client.drop_connection()
    with contextlib.suppress(redis_errors.RedisError, OSError):
        await client.connection_pool.disconnect(inuse_connections=False)


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks that talk to Redis until they have ended.

    redis-py sends through `asyncio.wait_for`, which on Python 3.11 may swallow a cancellation.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)


def _limits(max_connections: int, timeout_s: float) -> dict[str, Any]:
    return {"max_connections": max_connections, "socket_timeout": timeout_s}
