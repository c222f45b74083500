"""Listening to a channel of a queue, on a connection whose death is noticed."""

import contextlib
from collections.abc import AsyncIterator

from redis.asyncio.client import PubSub

from orchestrator.scripts.connection import Client, node_of

POLL_S = 4.0
MAX_SILENT_POLLS = 2


class Listener:
    """A subscription. `next_message` raises `TimeoutError` when the server has not even answered a ping."""

    def __init__(self, channel: PubSub) -> None:
        self._channel = channel
        self._silent_polls = 0

    async def next_message(self) -> bytes | None:
        """The next message; None when there was none for a while."""
        while True:
            message = await self._channel.get_message(timeout=POLL_S)
            if message is None:
                self._silent_polls += 1
                if self._silent_polls > MAX_SILENT_POLLS:
                    raise TimeoutError("the connection is silent")
                await self._channel.ping()
                return None
            self._silent_polls = 0
            if message["type"] == "message":
                data: bytes = message["data"]
                return data


@contextlib.asynccontextmanager
async def listen(client: Client, name: str) -> AsyncIterator[Listener]:
    """Subscribe; inside, the subscription stands.

    In a cluster at the node that publishes: what the others get over the cluster's bus may be lost on the way.
    """
    node = await node_of(client, name)
    async with node.pubsub() as channel:
        await channel.subscribe(name)
        if await channel.get_message(timeout=POLL_S) is None:
            raise TimeoutError("the subscription was not confirmed")
        yield Listener(channel)
