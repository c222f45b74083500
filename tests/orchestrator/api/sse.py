"""Reading a stream of server-sent events, as a browser does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec


class Message(msgspec.Struct, frozen=True):
    """One event; `last_id` is the client's last event id after it."""

    event: str
    data: dict[str, Any]
    id: str | None
    retry_ms: int | None
    last_id: str


class EventSource:
    """An open stream."""

    def __init__(self, response: httpx.Response, last_id: str) -> None:
        self.response = response
        self.last_id = last_id
        self.retry_ms: int | None = None
        self._lines = response.aiter_lines()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line and not line.startswith(":"):
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            elif fields and not line:
                message, fields = self._message(fields), {}
                if message is not None:
                    yield message

    def _message(self, fields: dict[str, str]) -> Message | None:
        self.last_id = fields.get("id", self.last_id)
        retry_ms = int(fields["retry"]) if "retry" in fields else None
        self.retry_ms = retry_ms or self.retry_ms
        if "data" not in fields:
            return None
        return Message(fields["event"], msgspec.json.decode(fields["data"]), fields.get("id"), retry_ms, self.last_id)

    async def comment(self) -> None:
        """Read up to the next comment."""
        async for line in self._lines:
            if line.startswith(":"):
                return
        raise AssertionError("the stream ended without a comment")

    async def until(self, *events: str) -> list[Message]:
        """Read up to the first of these events."""
        found = []
        async for message in self:
            found.append(message)
            if message.event in events:
                return found
        raise AssertionError(f"the stream ended without {events}, after {[message.event for message in found]}")

    async def take(self, count: int) -> list[Message]:
        """Read so many events."""
        found: list[Message] = []
        async for message in self:
            found.append(message)
            if len(found) == count:
                return found
        raise AssertionError(f"the stream ended after {len(found)} events")


@asynccontextmanager
async def watching(web: httpx.AsyncClient, path: str, last_id: str = "") -> AsyncIterator[EventSource]:
    """Open a stream."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
    async with web.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield EventSource(response, last_id)
