"""Calls that are answered when what they wrote is on the server's disk."""

import contextlib
from collections.abc import Iterator
from typing import Any

from redis import exceptions as redis_errors

from orchestrator.errors import InvalidOption
from orchestrator.keys import Keys
from orchestrator.scripts.connection import Client, node_of

WAIT_MS = 2000  # below the time that a socket waits for an answer, and a quarter of any deadline
FIELD = "durable"


class Disk:
    """The append-only file of the server that has a queue.

    WAITAOF waits for what its own connection wrote, hence one pipeline. A call that is sent again, or that finds its
    job there, writes nothing, and what was written before may still be on its way: so each pipeline writes a word.
    """

    def __init__(self, client: Client, keys: Keys, deadline_s: float) -> None:
        self._client = client
        self._keys = keys
        self._wait_ms = max(1, min(WAIT_MS, int(250 * deadline_s)))
        self._is_checked = False

    async def run(self, *command: str | bytes | int) -> Any:
        """The answer to a command, once the disk has what it and all before it wrote.

        Raises `InvalidOption`, before anything is sent, when the server cannot say that; redis-py's TimeoutError when
        it does not say it in time.
        """
        node: Any = await node_of(self._client, self._keys.meta)
        if not self._is_checked:
            with _named():
                await node.execute_command("WAITAOF", 1, 0, 1)
            self._is_checked = True
        pipeline = node.pipeline(transaction=False)
        pipeline.execute_command(*command)
        pipeline.execute_command("SET", self._keys.synced, "", "PX", self._wait_ms)
        pipeline.execute_command("WAITAOF", 1, 0, self._wait_ms)
        answer, mark, written = await pipeline.execute(raise_on_error=False)
        if isinstance(answer, redis_errors.AskError) and node is not self._client:  # the slot has moved, or is moving
            raise redis_errors.TryAgainError(str(answer))
        for reply in (answer, written):
            if isinstance(reply, Exception):
                with _named():
                    raise reply
        if isinstance(mark, Exception) or written[0] < 1:
            raise redis_errors.TimeoutError("its append-only file is not synced")
        return answer


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """Tell a server that has no such promise from one that is away."""
    try:
        yield
    except redis_errors.ResponseError as problem:
        text = str(problem)
        if "unknown command" in text:
            raise InvalidOption(FIELD, "is not supported by this server: it needs Redis ≥ 7.2 or Valkey") from None
        if "appendonly is disabled" in text:
            raise InvalidOption(FIELD, "needs an append-only file: start the server with --appendonly yes") from None
        if "replica instances" in text:
            raise redis_errors.ReadOnlyError(text) from None
        raise
