"""A connection that many calls share: they are written as they come, and answered in that order.

Problem: a connection that one call has for itself costs a visit to the pool, a reader's task that is woken, and a
timeout to enter and to leave. Choice: redis-py connects and authenticates, then this takes over the transport. Price:
who drops it drops it for all, so only what may be sent again may go here; and redis-py's two names for its streams.

There is no PING after idleness, as redis-py has it: of a peer that is gone the first call learns as a PING would, by
its timeout, and is sent again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Any

import hiredis
from redis import exceptions as redis_errors
from redis.asyncio.connection import DefaultParser

LOST = "Connection closed by server."
_NOTHING = object()


class SharedConnection(asyncio.Protocol):
    """Takes over a connection of redis-py that is ready.

    When nothing has come for `timeout_s` (None = no limit) that a call waits for, and for as long again where it is
    large enough to wait for the network, this ends: nobody knows what is still to come. All who wait get an error.

    most: calls that may be on their way at once; the others wait for their turn.
    """

    def __init__(self, connection: Any, most: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_open = True
        self._timeout_s: float | None = connection.socket_timeout
        self._most = most
        self._calls: deque[tuple[asyncio.Future[Any], float]] = deque()  # and when they should have an answer
        self._reader = hiredis.Reader(
            protocolError=redis_errors.InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=_NOTHING
        )
        self._watch: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._is_held_up = False
        self._entrance = asyncio.Lock()
        self._moved = asyncio.Event()
        self._ended = self.loop.create_future()
        self._writer: asyncio.StreamWriter = connection._writer  # kept, since its end would be the transport's
        connection._reader = connection._writer = None  # the same
        self._transport = self._writer.transport
        self._transport.set_protocol(self)
        if self._transport.is_closing():
            self.connection_lost(None)

    def call(self, command: bytes, until: float | None) -> Awaitable[Any]:
        """The answer to a packed command; TimeoutError when there is none `until` then by the loop's clock."""
        if self._is_full() or self._entrance.locked():
            return self._call_in_turn(command, until)
        return self._send(command, until)

    def drop(self) -> None:
        """Close it at once."""
        self._end(redis_errors.ConnectionError, "Connection closed.")

    async def close(self) -> None:
        """Close it, and wait for that."""
        self.drop()
        await self._ended

    def forget(self) -> None:
        """Of a parent's connection: use it no more, and leave its socket alone."""
        self.is_open = False

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────

    def _is_full(self) -> bool:
        return self._is_held_up or len(self._calls) >= self._most

    async def _call_in_turn(self, command: bytes, until: float | None) -> Any:
        async with asyncio.timeout_at(until):
            async with self._entrance:
                while self._is_full() and self.is_open:
                    self._moved.clear()
                    await self._moved.wait()
                answer = self._send(command, None)
            return await answer

    def _send(self, command: bytes, until: float | None) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self.loop.create_future()
        if not self.is_open:
            answer.set_exception(redis_errors.ConnectionError(LOST))
            return answer
        self._transport.write(command)
        if self._timeout_s is None:
            due_at = last_at = float("inf")
        else:
            now = self.loop.time()
            due_at, last_at = now + self._timeout_s, now + 2 * self._timeout_s
            if self._is_held_up:
                due_at = last_at
            if self._watch is None:
                self._watch = self.loop.call_at(due_at, self._look)
        self._calls.append((answer, due_at))
        if until is not None and until < last_at:
            leaving = self.loop.call_at(until, _leave, answer)
            answer.add_done_callback(lambda _: leaving.cancel())
        return answer

    def _look(self) -> None:
        """Whether the oldest call has waited too long. One timer serves all, as long as there are calls."""
        self._watch = None
        if not self._calls or not self.is_open:
            return
        due_at = max(self._calls[0][1], self._heard_at + (self._timeout_s or 0.0))  # a long answer takes its time
        if due_at > self.loop.time():
            self._watch = self.loop.call_at(due_at, self._look)
        else:
            self._end(redis_errors.TimeoutError, f"no answer within {self._timeout_s:g} s")

    # ── what the transport tells ─────────────────────────────────────────────────────────────────────

    def data_received(self, content: bytes) -> None:
        """Give each answer to the oldest call."""
        self._heard_at = self.loop.time()
        self._reader.feed(content)
        try:
            while (answer := self._reader.gets()) is not _NOTHING:
                if not isinstance(answer, hiredis.PushNotification):
                    caller, _ = self._calls.popleft()
                    self._give(answer, caller)
        except (redis_errors.InvalidResponse, IndexError) as problem:  # nonsense, or what nobody asked for
            self._end(redis_errors.ConnectionError, f"Protocol error: {problem}")
        if self._entrance.locked():
            self._moved.set()

    def _give(self, answer: Any, caller: asyncio.Future[Any]) -> None:
        if caller.done():
            return  # it has left
        if not isinstance(answer, Exception):
            caller.set_result(answer)
            return
        caller.set_exception(answer)
        if isinstance(answer, redis_errors.ConnectionError):  # as redis-py does: a new one would give a password
            self.drop()

    def pause_writing(self) -> None:
        """The network takes no more."""
        self._is_held_up = True

    def resume_writing(self) -> None:
        """It does again."""
        self._is_held_up = False
        self._moved.set()

    def connection_lost(self, problem: Exception | None) -> None:
        """The last thing that the transport tells."""
        self._end(redis_errors.ConnectionError, LOST if problem is None else f"Connection lost: {problem}")
        if not self._ended.done():
            self._ended.set_result(None)

    def _end(self, kind: type[Exception], text: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._transport.abort()
        if self._watch is not None:
            self._watch.cancel()
        for caller, _ in self._calls:
            if not caller.done():
                caller.set_exception(kind(text))
        self._calls.clear()
        self._moved.set()


def _leave(answer: "asyncio.Future[Any]") -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())
