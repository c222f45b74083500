import asyncio
import gzip
import random
import shutil
import ssl
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h11
import pytest

from orchestrator.addresses import AddressPolicy, Endpoint, check_url
from tests.webhooks.posting import failure, policy, post
from tests.webhooks.receiver import OK, Receiver, Request, answer
from webhooks import transport as transport_module
from webhooks.transport import KEEP_BYTES, READ_LIMIT_BYTES, Answer, CallFailed, Transport

FOREVER = 10**9


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_message_arrives_as_it_was_written() -> None:
    async with Receiver(answer(201, "Retry-After: 7", "Webhook-Delivery: disable", body=b"thanks")) as receiver:
        got = await post(receiver)
    assert got == Answer(status=201, retry_after="7", control="disable", body=b"thanks")
    assert receiver.requests == [
        Request(
            "POST /hook HTTP/1.1",
            {
                "host": f"127.0.0.1:{receiver.port}",
                "accept": "*/*",
                "accept-encoding": "identity",
                "connection": "close",
                "content-length": "7",
                "webhook-id": "msg_1",
            },
            b'{"a":1}',
        )
    ]


async def test_an_answer_that_comes_before_the_body_was_read_counts() -> None:
    async def impatient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer(413))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(impatient, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        got = await Transport(policy()).post(Endpoint("http", "127.0.0.1", port, "/"), {}, b"x" * 20_000)
    assert got.status == 413


# ── connecting ───────────────────────────────────────────────────────────────────────────────────────


def fail_first(monkeypatch: pytest.MonkeyPatch, times: int) -> list[str]:
    real, calls = asyncio.open_connection, list[str]()

    async def flaky(host: str, *args: Any, **options: Any) -> Any:
        calls.append(host)
        if len(calls) <= times:
            raise ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 80)")
        return await real(host, *args, **options)

    monkeypatch.setattr(asyncio, "open_connection", flaky)
    return calls


async def test_a_connection_that_fails_at_once_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fail_first(monkeypatch, 1)
    async with Receiver() as receiver:
        assert (await post(receiver)).status == 200
    assert len(calls) == 2


async def test_a_connection_that_fails_twice_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fail_first(monkeypatch, 2)
    async with Receiver() as receiver:
        failed = await failure(receiver)
    assert (failed.kind, str(failed)) == ("connect", "Connection refused")
    assert len(calls) == 2


async def test_a_connection_that_fails_slowly_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fail_first(monkeypatch, 1)
    monkeypatch.setattr(transport_module, "INSTANT_RETRY_S", -1.0)
    async with Receiver() as receiver:
        assert (await failure(receiver)).kind == "connect"
    assert len(calls) == 1


async def test_a_receiver_that_is_down_is_a_failure_to_connect() -> None:
    async with Receiver() as receiver:
        pass
    assert (await failure(receiver)).kind == "connect"


# ── one deadline ─────────────────────────────────────────────────────────────────────────────────────


def trickle(first: bytes, then: bytes) -> Callable[[Request, asyncio.StreamWriter], Any]:
    async def write(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        for _ in range(FOREVER):
            writer.write(then)
            await writer.drain()
            await asyncio.sleep(0.01)

    return write


@pytest.mark.parametrize(
    "slow",
    [
        trickle(b"", b""),
        trickle(b"HTTP/1.1 200 OK\r\n", b"a"),
        trickle(b"HTTP/1.1 200 OK\r\nX: ", b"a: b\r\n"),
        trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"a"),
        trickle(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
        trickle(b"HTTP/1.1 200 OK\r\n\r\n", b""),
        trickle(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
    ids=["silent", "status line", "header", "body", "chunks", "no end", "hints"],
)
async def test_a_receiver_that_trickles_is_left_at_the_deadline(slow: Any) -> None:
    async with Receiver(slow) as receiver:
        failed = await failure(receiver, Transport(policy(), timeout_s=0.2))
    assert (failed.kind, str(failed)) == ("timeout", "no whole answer within 0.2 s")


async def test_a_name_server_that_hangs_is_left_at_the_deadline() -> None:
    async def hang(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    transport = Transport(AddressPolicy(allow_http=True, lookup=hang), timeout_s=0.05)
    with pytest.raises(CallFailed) as failed:
        await transport.post(check_url("http://a.example/", transport.policy), {}, b"")
    assert failed.value.kind == "timeout"


async def test_a_handshake_that_hangs_is_left_at_the_deadline() -> None:
    async with Receiver() as receiver:  # waits for a request, says nothing
        transport = Transport(policy(), timeout_s=0.1)
        with pytest.raises(CallFailed) as failed:
            await transport.post(Endpoint("https", "127.0.0.1", receiver.port, "/"), {}, b"")
    assert failed.value.kind == "timeout"


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────


async def test_of_a_gigabyte_16_kib_are_read_and_1_kib_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    async def huge(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        while written < 1 << 30:
            writer.write(b"a" * 65536)
            written += 65536
            await writer.drain()

    fed = 0
    real = h11.Connection.receive_data

    def counting(connection: Any, chunk: bytes) -> None:
        nonlocal fed
        fed += len(chunk)
        real(connection, chunk)

    monkeypatch.setattr(h11.Connection, "receive_data", counting)
    async with Receiver(huge) as receiver:
        got = await post(receiver)
    assert (got.status, got.body) == (200, b"a" * KEEP_BYTES)
    assert fed == READ_LIMIT_BYTES
    assert written < 1 << 26  # the rest of what left the receiver lies in the kernel's buffers


async def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(1 << 26))
    async with Receiver(answer(200, "Content-Encoding: gzip", body=bomb)) as receiver:
        got = await post(receiver)
    assert (got.status, got.body) == (200, bomb[:KEEP_BYTES])


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"", "closed"),
        (b"hello\r\n", "closed"),
        (b"HTTP/1.1 200", "closed"),
        (b"HTTP/1.1 999999 OK\r\n\r\n", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n\r\n", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 10_000 + b"\r\n", "bad_answer"),
        (b"HTTP/1.1 102 Processing\r\n\r\n" * 10_000, "bad_answer"),
        (bytes(range(256)) * 100, "bad_answer"),
    ],
)
async def test_what_is_no_http_answer_is_a_failure(sent: bytes, kind: str) -> None:
    async with Receiver(sent) as receiver:
        assert (await failure(receiver)).kind == kind


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
async def test_unusual_but_right_answers_count(sent: bytes) -> None:
    async with Receiver(sent) as receiver:
        assert (await post(receiver)).status in (200, 204)


async def test_a_connection_cut_by_the_receiver_is_a_failure() -> None:
    async def cut(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with Receiver(cut) as receiver:
        assert (await failure(receiver)).kind == "closed"


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for receiver.example and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl program")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=receiver.example",
            "-addext",
            "subjectAltName=DNS:receiver.example",
            "-keyout",
            key,
            "-out",
            cert,
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


async def test_certificate_and_sni_are_those_of_the_name_not_of_the_address(certificate: tuple[Path, Path]) -> None:
    asked: list[str | None] = []
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    server.sni_callback = lambda _socket, name, _context: asked.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    names = policy({"receiver.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]})
    async with Receiver(tls=server) as receiver:
        endpoint = check_url(f"https://receiver.example:{receiver.port}/", names)
        assert (await Transport(names, tls=trusting).post(endpoint, {}, b"{}")).status == 200
        assert receiver.requests[0].headers["host"] == f"receiver.example:{receiver.port}"
        assert asked == ["receiver.example"]

        other = check_url(f"https://other.example:{receiver.port}/", names)
        for transport, target in ((Transport(names, tls=trusting), other), (Transport(names), endpoint)):
            with pytest.raises(CallFailed) as failed:
                await transport.post(target, {}, b"{}")
            assert failed.value.kind == "tls"
            assert "certificate" in str(failed.value)
        assert len(receiver.requests) == 1


async def test_a_receiver_that_does_not_speak_tls_is_a_failure() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(CallFailed) as failed:
            await Transport(policy()).post(Endpoint("https", "127.0.0.1", port, "/"), {}, b"")
    assert failed.value.kind == "tls"


# ── under cancellation ───────────────────────────────────────────────────────────────────────────────


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
async def test_after_5000_cancellations_nothing_is_left_and_100_messages_arrive() -> None:
    chance = random.Random(3)
    transport = Transport(policy())
    async with Receiver() as receiver:
        await post(receiver, transport)
        before = open_files()

        async def cancelled() -> None:
            task = asyncio.create_task(post(receiver, transport))
            for _ in range(chance.randrange(25)):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})

        for _ in range(500):
            await asyncio.gather(*(cancelled() for _ in range(10)))
        answers = await asyncio.gather(*(post(receiver, transport) for _ in range(100)))
        assert [got.status for got in answers] == [200] * 100
        async with asyncio.timeout(10):
            while open_files() > before or receiver.closed < receiver.accepted:
                await asyncio.sleep(0.01)
