"""What uvicorn lacks: time limits on heads, bodies and answers, size limits on heads, a limit on connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec
import pytest

from orchestrator.api.protocol import LimitedProtocol, Limits
from orchestrator.api.server import Server
from orchestrator.queue import Queue
from orchestrator.settings import Settings
from tests.conftest import wait_until
from tests.orchestrator.api.conftest import serving

SHORT = Limits(receive_s=0.3, write_s=0.3, linger_s=0.2, body_bytes=100_000, connections=50)
HEAD = b"POST /v1/generations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"prompt": "a red circle"}'
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
async def short(settings: Settings) -> AsyncIterator[Server]:
    """A server whose patience is short."""
    async with serving(settings, SHORT) as server:
        yield server


class Wire:
    """A client that says exactly what it wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of the next response."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        assert fields[b"x-content-type-options"] == b"nosniff"
        return int(head.split(b" ", 2)[1]), await self.reader.readexactly(int(fields[b"content-length"]))

    async def end(self) -> bytes:
        """Everything up to the end of the connection."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def dribble(self, data: bytes, pause_s: float = 0.02) -> None:
        """One byte at a time, until it is refused."""
        try:
            for byte in data:
                await self.say(bytes([byte]))
                await asyncio.sleep(pause_s)
        except ConnectionError:
            return


@asynccontextmanager
async def wire(server: Server) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(20):
            yield Wire(reader, writer)
    finally:
        writer.transport.abort()


async def is_well(server: Server) -> None:
    """An ordinary client is served, and nothing is left of the others."""
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://127.0.0.1:{server.port}/healthz")).status_code == 200
    await wait_until(lambda: not server.server_state.connections and not server.server_state.tasks)


async def test_a_silent_connection_is_closed_without_a_word(short: Server) -> None:
    async with wire(short) as client:
        assert await client.end() == b""
    await is_well(short)


@pytest.mark.parametrize("part", [b"G", b"GET / HTTP/1.1\r\n", HEAD, HEAD + b"X-Long: aaa", b"\r\n"])
async def test_half_a_head_is_told_and_closed(short: Server, part: bytes) -> None:
    async with wire(short) as client:
        await client.say(part)
        status, body = await client.answer()
        assert status == 408
        assert msgspec.json.decode(body)["status"] == 408
        assert await client.end() == b""
    await is_well(short)


async def test_a_dribbling_head_is_told_and_closed(short: Server) -> None:
    async with wire(short) as client:
        dribbling = asyncio.create_task(client.dribble(HEAD))
        assert (await client.answer())[0] == 408
        await dribbling
    await is_well(short)


@pytest.mark.parametrize(
    "part",
    [
        b"Content-Length: 100\r\n\r\n",
        b"Content-Length: 100\r\n\r\n" + BODY,
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
    ],
)
async def test_half_a_body_is_told_and_closed(short: Server, queue: Queue, part: bytes) -> None:
    async with wire(short) as client:
        await client.say(HEAD + part)
        assert (await client.answer())[0] == 408
        assert await client.end() == b""
    await is_well(short)
    assert sum((await queue.get_counts()).values()) == 0


async def test_a_dribbling_body_is_told_and_closed(short: Server) -> None:
    async with wire(short) as client:
        await client.say(HEAD + b"Content-Length: 100\r\n\r\n")
        dribbling = asyncio.create_task(client.dribble(b'{"prompt": "' + b"a" * 60))
        assert (await client.answer())[0] == 408
        await dribbling
    await is_well(short)


async def test_hundreds_of_slow_clients_do_not_hold_up_an_ordinary_one(settings: Settings) -> None:
    limits = Limits(receive_s=1.0, linger_s=0.2)
    async with serving(settings, limits) as server:
        writers = []
        for number in range(300):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write((b"", b"GET / HT", HEAD + b"Content-Length: 9\r\n\r\n{")[number % 3])
            writers.append(writer)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
            response = await client.post("/v1/generations", json={"prompt": "a red circle"})
            assert response.status_code == 202
        await wait_until(lambda: not server.server_state.connections and not server.server_state.tasks)
        for writer in writers:
            writer.transport.abort()


async def test_connections_are_kept_for_the_next_request_but_not_for_ever(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.api.server.KEEP_ALIVE_S", 0.3)
    async with serving(settings, SHORT) as server:
        async with wire(server) as client:
            for _ in range(3):
                await client.say(GET)
                assert (await client.answer())[0] == 200
            assert await client.end() == b""
        await is_well(server)


async def test_pipelined_requests_are_answered_in_order(short: Server) -> None:
    async with wire(short) as client:
        await client.say(GET + GET.replace(b"/healthz", b"/v1/models") + GET.replace(b"/healthz", b"/v1/nothing"))
        assert [(await client.answer())[0] for _ in range(3)] == [200, 200, 404]


async def test_a_body_in_many_pieces_arrives_whole(short: Server) -> None:
    async with wire(short) as client:
        await client.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for byte in BODY:
            await client.say(b"1\r\n%c\r\n" % byte)
        await client.say(b"0\r\n\r\n")
        assert (await client.answer())[0] == 202


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET /?" + b"a=b&" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET /" + b"a" * 300_000, 414),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000, 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: 1\r\n" * 10_000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: 1\r\n" * 99 + b"\r\n", 404),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: 1\r\n" * 100 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400),
        (HEAD + b"Content-Length: 5, 6\r\n\r\n", 400),
        (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
        (HEAD + b"Content-Length: 2000000\r\n\r\n", 413),
    ],
)
async def test_heads_out_of_all_bounds_are_refused(
    settings: Settings, tmp_path: object, monkeypatch: pytest.MonkeyPatch, request_bytes: bytes, status: int
) -> None:
    monkeypatch.setattr("orchestrator.api.pages.files", lambda _: tmp_path)  # no page: / is 404
    async with serving(settings, SHORT) as server:
        async with wire(server) as client:
            sending = asyncio.create_task(client.say(request_bytes))
            answered, body = await client.answer()
            assert answered == status
            assert msgspec.json.decode(body)["status"] == status
            sending.cancel()
        await is_well(server)


async def test_trailers_are_part_of_the_limits(short: Server) -> None:
    async with wire(short) as client:
        await client.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: " + b"a" * 40_000 + b"\r\n\r\n")
        assert (await client.answer())[0] == 431
    async with wire(short) as client:
        await client.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"a" * 500_000)
        assert (await client.answer())[0] == 413
    await is_well(short)


async def test_a_body_over_the_limit_is_refused_by_what_it_says_and_by_what_it_is(
    settings: Settings, queue: Queue
) -> None:
    small = msgspec.structs.replace(settings, body_limit_bytes=1000)
    async with serving(small, SHORT) as server:
        async with wire(server) as client:
            await client.say(HEAD + b"Content-Length: 1001\r\n\r\n" + b" " * 1001 + GET)
            assert (await client.answer())[0] == 413
            assert (await client.answer())[0] == 200  # the connection is as good as before
        async with wire(server) as client:
            await client.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1f4\r\n%b\r\n" % (b" " * 500) * 3)
            assert (await client.answer())[0] == 413
            await client.say(b"0\r\n\r\n" + GET)
            assert (await client.answer())[0] == 200
        async with wire(server) as client:
            await client.say(HEAD + b"Content-Length: 1000\r\n\r\n" + BODY + b" " * (1000 - len(BODY)))
            assert (await client.answer())[0] == 202
    assert (await queue.get_counts())["waiting"] + (await queue.get_counts())["prioritized"] >= 1


async def test_a_client_that_goes_on_sending_after_its_answer_is_cut_off(settings: Settings) -> None:
    small = msgspec.structs.replace(settings, body_limit_bytes=1000)
    async with serving(small, SHORT) as server:
        async with wire(server) as client:
            await client.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            await client.say(b"fff\r\n" + b"a" * 1500)
            assert (await client.answer())[0] == 413
            dribbling = asyncio.create_task(client.dribble(b"a" * 1500))
            await client.end()
            await dribbling
        await is_well(server)


async def test_a_body_longer_than_it_says_is_not_taken_for_more(short: Server) -> None:
    async with wire(short) as client:
        await client.say(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY + b"}}}}\r\n\r\n")
        assert (await client.answer())[0] == 202
        assert await client.end() == b""
    await is_well(short)


async def test_too_many_connections_are_turned_away(settings: Settings) -> None:
    async with serving(settings, Limits(connections=3, linger_s=0.2)) as server:
        writers = [(await asyncio.open_connection("127.0.0.1", server.port))[1] for _ in range(3)]
        await wait_until(lambda: len(server.server_state.connections) == 3)
        async with wire(server) as client:
            assert (await client.answer())[0] == 503
        for writer in writers:
            writer.transport.abort()
        await is_well(server)


async def test_a_client_that_does_not_take_its_answers_is_cut_off(settings: Settings) -> None:
    async with serving(settings, SHORT) as server:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
            for _ in range(40):
                await client.post("/v1/generations", json={"prompt": "a" * 2000, "negative_prompt": "b" * 2000})
        await wait_until(lambda: not server.server_state.connections)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(GET.replace(b"/healthz", b"/v1/generations") * 100)  # 16 MB of answers
        await wait_until(lambda: len(server.server_state.connections) == 1)
        await wait_until(lambda: not server.server_state.connections and not server.server_state.tasks)
        writer.transport.abort()


async def test_a_closed_connection_leaves_no_timer(short: Server) -> None:
    async with wire(short) as client:
        await client.say(HEAD + b"Content-Length: 100\r\n\r\n{")
        await wait_until(lambda: len(short.server_state.connections) == 1)
        (protocol,) = short.server_state.connections
        assert isinstance(protocol, LimitedProtocol)
        await wait_until(lambda: protocol._in_body)
    await wait_until(lambda: not short.server_state.connections)
    assert protocol._receive_timer is None
    assert protocol._write_timer is None
    assert protocol.timeout_keep_alive_task is None
