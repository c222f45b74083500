"""A proxy between a client and a server that can lose replies, hold everything up, delay, and cut connections."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

Loss = Literal["close", "swallow"]


class FaultProxy:
    """Listens on a unix socket and passes everything on to `target` (a unix socket), unless told otherwise.

    lose_reply: the reply to the next request that contains `marker` is lost after the server has run it, and the
    connection is closed or left open. `lost` counts them. delay_s: each reply waits for so long. trickles: a reply
    comes byte by byte. `target` may be changed: connections that are there keep their own.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self.url = f"unix://{path}"
        self.delay_s = 0.0
        self.trickles = False
        self.lost = 0
        self._path = path
        self.target = target
        self._armed: Loss | None = None
        self._marker = b""
        self._flowing = asyncio.Event()  # of the connections that are made now
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accept, self._path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def lose_reply(self, how: Loss, marker: bytes = b"FCALL") -> None:
        """Lose the reply to the next request that contains `marker`."""
        self._armed, self._marker = how, marker

    def cut(self) -> None:
        """Close all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def cut_one(self, draw: random.Random) -> None:
        """Close one of the connections."""
        if self._writers:
            draw.choice(sorted(self._writers, key=id)).transport.abort()

    def freeze(self) -> None:
        """Let nothing pass on the connections that are there, and tell nobody; new ones work."""
        self._flowing.clear()
        self._flowing = asyncio.Event()
        self._flowing.set()

    @contextlib.asynccontextmanager
    async def blackhole(self) -> AsyncIterator[None]:
        """Inside, nothing passes in either direction, and nobody is told."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._connect(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flowing = self._flowing
        await flowing.wait()
        server_reader, server_writer = await asyncio.open_unix_connection(self.target)
        losing: list[Loss] = []
        ways = [
            asyncio.create_task(self._requests(reader, server_writer, losing, flowing)),
            asyncio.create_task(self._replies(server_reader, writer, losing, flowing)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server_writer.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: list[Loss], flowing: asyncio.Event
    ) -> None:
        while content := await reader.read(65536):
            await flowing.wait()
            if self._armed is not None and self._marker in content:
                losing.append(self._armed)
                self._armed = None
            writer.write(content)
            await writer.drain()

    async def _replies(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: list[Loss], flowing: asyncio.Event
    ) -> None:
        while content := await reader.read(65536):
            await flowing.wait()
            if losing:
                self.lost += 1
                if losing.pop() == "close":
                    return
                continue
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            pieces = [content[at : at + 1] for at in range(len(content))] if self.trickles else [content]
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
