"""Server-sent events: one response that lives until its feed ends, its client leaves, or the server stops."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.types import Receive, Scope, Send

from orchestrator.events import Event
from orchestrator.hub import Lagged, Watch

HEARTBEAT_S = 15.0
PARTING_S = 1.0  # for the last words to a client that may not be reading
HEARTBEAT = b":\n\n"

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would collect events before it passes them on
]

Write = Callable[[bytes], Awaitable[None]]
Feed = Callable[[Write], Awaitable[None]]


def frame(event: str, data: bytes, event_id: str | None = None, retry_ms: int | None = None) -> bytes:
    """One event. `data` is JSON in one line; without an id the client keeps the last one it had."""
    lines = [b"event: ", event.encode(), b"\ndata: ", data, b"\n"]
    if event_id is not None:
        lines += [b"id: ", event_id.encode(), b"\n"]
    if retry_ms is not None:
        lines += [b"retry: %d\n" % retry_ms]
    return b"".join([*lines, b"\n"])


class Streams:
    """The open streams of this process, so that a stop can end them."""

    def __init__(self, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.heartbeat_s = heartbeat_s
        self.is_stopping = False
        self._lives: set[asyncio.Timeout] = set()

    def __len__(self) -> int:
        return len(self._lives)

    def stop(self) -> None:
        """End all streams, with a hint when to come back; new ones end at once."""
        self.is_stopping = True
        for life in list(self._lives):
            self.end(life)

    def end(self, life: asyncio.Timeout) -> None:
        """End one stream, if it still is."""
        if life in self._lives and not life.expired():
            life.reschedule(asyncio.get_running_loop().time())

    @contextmanager
    def opened(self, life: asyncio.Timeout) -> Iterator[None]:
        """Keep `life` among the open ones for the length of the block."""
        self._lives.add(life)
        if self.is_stopping:
            self.end(life)
        try:
            yield
        finally:
            self._lives.discard(life)

    async def next_event(self, watch: Watch) -> Event | None:
        """The next event, or None when it is time for a heartbeat. Raises `Lagged`."""
        try:
            async with asyncio.timeout(self.heartbeat_s):
                return await anext(watch)
        except TimeoutError:
            return None


class EventStream:
    """A response: the frames that `feed` writes.

    It begins with the first frame, so errors before that are answered like anywhere else. A slow client holds up the
    feed, whose watch then lags and ends; one that takes nothing at all is cut off by the protocol.
    """

    def __init__(self, streams: Streams, feed: Feed) -> None:
        self.streams = streams
        self.feed = feed
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the feed. Its life is a timeout without an end, until somebody sets it to now."""
        if scope["method"] == "HEAD":
            await self._part(send)
            return

        async def write(frames: bytes) -> None:
            if life.expired():
                raise TimeoutError  # the cancellation got lost: redis-py's sends may swallow one on Python 3.11
            if not self._has_begun:
                self._has_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
            await send({"type": "http.response.body", "body": frames, "more_body": True})

        life = asyncio.timeout(None)
        is_gone = asyncio.Event()
        try:
            async with life:
                with self.streams.opened(life):
                    listener = asyncio.create_task(self._listen(receive, life, is_gone))
                    try:
                        await self.feed(write)
                    finally:
                        listener.cancel()
        except Lagged:
            pass  # the client comes back with its last id
        except TimeoutError:
            if not life.expired():
                raise
        if not is_gone.is_set():
            await self._part(send)

    async def _listen(self, receive: Receive, life: asyncio.Timeout, is_gone: asyncio.Event) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        is_gone.set()
        self.streams.end(life)

    async def _part(self, send: Send) -> None:
        if not self._has_begun:
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        # Back soon, but spread out, so that they do not all knock at the same moment.
        hint = b"retry: %d\n\n" % random.randint(500, 3000) if self.streams.is_stopping else b""
        with suppress(TimeoutError):
            async with asyncio.timeout(PARTING_S):
                await send({"type": "http.response.body", "body": hint, "more_body": False})
