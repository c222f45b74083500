"""One POST over one connection to an address that was checked, under one deadline."""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping

import h11
import msgspec

from orchestrator.addresses import AddressPolicy, Endpoint, resolve

READ_LIMIT_BYTES = 16 * 1024
KEEP_BYTES = 1024
MAX_ADDRESSES = 4  # tried in turn, each with its share of the time that is left
INSTANT_RETRY_S = 1.0

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CallFailed(Exception):
    """No answer. `kind` is dns, connect, tls, timeout, closed or bad_answer; the message names no address."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver answered: the status, the two headers that matter, and the first 1 KiB of the body."""

    status: int
    retry_after: str | None = None
    control: str | None = None
    body: bytes = b""


class Transport:
    """Posts to endpoints.

    A connection serves one message and is dropped. So every attempt looks the name up and checks its addresses anew,
    there is no pool whose slots a cancellation can leak (httpcore#1093), no answer that the next message could read,
    and no environment proxy, redirect, cookie or content decoding, because nothing here knows of them. The price is a
    TLS handshake per message.
    """

    def __init__(self, policy: AddressPolicy, timeout_s: float = 15.0, tls: ssl.SSLContext | None = None) -> None:
        self.policy = policy
        self.timeout_s = timeout_s
        self._tls = tls or _tls_context()

    async def post(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send `body` and return the answer: a whole one, or its first 16 KiB.

        The deadline covers look-up, connect, TLS, head and body together. Raises `CallFailed`, or `InvalidOption` if
        an address of the endpoint is not allowed (nothing was connected then).
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                reader, writer = await self._open(endpoint)
                try:
                    return await _exchange(endpoint, headers, body, reader, writer)
                finally:
                    writer.transport.abort()
        except TimeoutError:
            raise CallFailed("timeout", f"no whole answer within {self.timeout_s:g} s") from None
        except ssl.SSLError as problem:
            raise CallFailed("tls", _describe(problem)) from None
        except OSError as problem:
            raise CallFailed("closed", _describe(problem)) from None

    async def _open(self, endpoint: Endpoint) -> _Streams:
        """A connection to one of the checked addresses, with one instant retry after a quick failure."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_s
        try:
            addresses = await resolve(endpoint.host, endpoint.port, self.policy)
        except socket.gaierror as problem:
            raise CallFailed("dns", f"the name cannot be resolved: {problem.strerror}") from None
        except OSError as problem:
            raise CallFailed("dns", _describe(problem)) from None
        began = loop.time()
        try:
            return await self._connect(endpoint, addresses[:MAX_ADDRESSES], deadline)
        except ConnectionError as problem:
            if loop.time() - began > INSTANT_RETRY_S:
                raise CallFailed("connect", _describe(problem)) from None
        try:
            return await self._connect(endpoint, addresses[:MAX_ADDRESSES], deadline)
        except ConnectionError as problem:
            raise CallFailed("connect", _describe(problem)) from None

    async def _connect(self, endpoint: Endpoint, addresses: list[str], deadline: float) -> _Streams:
        """Try the addresses in turn. The certificate is checked against the endpoint's name, never the address."""
        loop = asyncio.get_running_loop()
        failure: OSError = ConnectionError("no address")
        for position, address in enumerate(addresses):
            share = (deadline - loop.time()) / (len(addresses) - position)
            try:
                async with asyncio.timeout(share):
                    return await asyncio.open_connection(
                        address,
                        endpoint.port,
                        limit=READ_LIMIT_BYTES,
                        ssl=self._tls if endpoint.is_secure else None,
                        server_hostname=endpoint.host if endpoint.is_secure else None,
                    )
            except (TimeoutError, ssl.SSLError) as problem:
                failure = problem
            except OSError as problem:
                failure = ConnectionError(problem.errno, _describe(problem))
        raise failure


async def _exchange(
    endpoint: Endpoint,
    headers: Mapping[str, str],
    body: bytes,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> Answer:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=READ_LIMIT_BYTES)
    fields = {
        "Host": endpoint.authority,
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
        "Content-Length": str(len(body)),
        **headers,
    }
    request = h11.Request(method="POST", target=endpoint.target, headers=list(fields.items()))
    # Not drained: a message is under 20 kB, and a receiver may answer before it has read all of it.
    writer.write(b"".join(connection.send(event) or b"" for event in (request, h11.Data(body), h11.EndOfMessage())))
    try:
        return await _read(connection, reader)
    except h11.RemoteProtocolError as problem:
        raise CallFailed("bad_answer", str(problem)) from None


async def _read(connection: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    answer: h11.Response | None = None
    kept = bytearray()
    left = READ_LIMIT_BYTES
    while left or answer is None:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if not left:
                raise CallFailed("bad_answer", f"the head is over {READ_LIMIT_BYTES} bytes")
            chunk = await reader.read(min(left, 4096))
            if not chunk and answer is None:
                raise CallFailed("closed", "the connection was closed without an answer")
            left -= len(chunk)
            connection.receive_data(chunk)
        elif isinstance(event, h11.Response):
            answer = event
        elif isinstance(event, h11.Data):
            kept += event.data[: KEEP_BYTES - len(kept)]
        elif not isinstance(event, h11.InformationalResponse):
            break  # the end of the message, or of the connection
    if answer is None:
        raise CallFailed("closed", "the connection was closed without an answer")
    fields = dict(answer.headers)
    return Answer(
        status=answer.status_code,
        retry_after=_text(fields.get(b"retry-after")),
        control=_text(fields.get(b"webhook-delivery")),
        body=bytes(kept),
    )


def _tls_context() -> ssl.SSLContext:
    """The system's authorities; HTTP/1.1 only."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _describe(problem: OSError) -> str:
    """Words for the log. Never `str(problem)`: asyncio writes the address into it."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the certificate was refused: {problem.verify_message}"
    if isinstance(problem, ssl.SSLError):
        return f"TLS failed: {problem.reason or 'unknown reason'}"
    return os.strerror(problem.errno) if problem.errno else "the connection failed"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1").strip()
