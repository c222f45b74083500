"""A webhook receiver for tests: records what it gets and answers whatever bytes it is told to."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Self

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Request(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    """A whole answer."""
    head = "\r\n".join((f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers))
    return head.encode() + b"\r\n\r\n" + body


class Receiver:
    """Listens on a loopback address. `answer` is bytes, or a function that writes them itself."""

    def __init__(
        self, answer: bytes | Answer = OK, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.answer = answer
        self.host = host
        self.port = port
        self.tls = tls
        self.accepted = 0
        self.closed = 0
        self.requests: list[Request] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/hook"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self.host, self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                request = await _read(reader)
                self.requests.append(request)
                if isinstance(self.answer, bytes):
                    writer.write(self.answer)
                    await writer.drain()
                else:
                    await self.answer(request, writer)
        finally:
            self.closed += 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head.rstrip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
    return Request(line, headers, await reader.readexactly(int(headers["content-length"])))
