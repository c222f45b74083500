"""The HTTP protocol of the server: uvicorn's on httptools, with the limits in time and size that it lacks.

uvicorn 0.54 waits for ever for a head or a body, and takes heads of any size (Kludex/uvicorn#157). Here

    silent connection                                   closed after `receive_s`
    half a head, half a body, however slowly it comes   408 after `receive_s` for each of the two
    a client that does not take its answer              aborted after `write_s` without room in the buffer
    a URL over `url_bytes` · a head over `head_bytes`   414 · 431
    a body whose transfer takes over `body_bytes`       413
    more than `connections` open connections            503

Answers given here are problem documents like all others. After them the connection is half-closed, and what the client
still sends is thrown away for a moment: closing at once would reset it and could take the answer along.
"""

import asyncio
from asyncio import TimerHandle
from typing import Any

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from orchestrator.api.problems import plain_problem
from orchestrator.api.security import SECURITY_HEADERS


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may take of the server. Times in seconds, sizes in bytes."""

    receive_s: float = 10.0
    write_s: float = 30.0
    linger_s: float = 1.0
    url_bytes: int = 8 * 1024
    head_bytes: int = 32 * 1024
    head_fields: int = 100
    body_bytes: int = 16 * 1024 * 1024
    connections: int = 12_000


class LimitedProtocol(HttpToolsProtocol):
    """One connection. Give uvicorn `with_limits(limits)` as its `http`."""

    limits = Limits()

    @classmethod
    def with_limits(cls, limits: Limits) -> type["LimitedProtocol"]:
        """The protocol under other limits."""
        return type(cls.__name__, (cls,), {"limits": limits})

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._receive_timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None
        self._in_body = False
        self._received = 0  # bytes of the head, then of the body's transfer
        self._head_bytes = 0  # bytes of the head's whole fields
        self._refusal: tuple[int, str] | None = None
        self._deaf = False

    # The life of a connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Greet the client, or turn it away when there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "There are too many connections.", b"retry-after: 5\r\n")
        else:
            self._start_receive_timer()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless nothing more is wanted from this client."""
        if self._deaf:
            return
        if self._receive_timer is None and not self._is_answering():
            self._start_receive_timer()
        self._received += len(data)
        super().data_received(data)
        if self._in_body and self._received > self.limits.body_bytes:
            self._refuse(413, f"The body's transfer takes more than {self.limits.body_bytes} bytes.")
        elif not self._in_body and self._received > self.limits.head_bytes:
            self._refuse(431, f"The head is larger than {self.limits.head_bytes} bytes.")

    def pause_writing(self) -> None:
        """The client takes its answer slower than it comes."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._write_timer = _stop(self._write_timer)

    def on_response_complete(self) -> None:
        """An answer is written; if it is the last one, it has to leave in time."""
        super().on_response_complete()
        self._abort_if_closing_takes_long()

    def shutdown(self) -> None:
        """The server stops."""
        super().shutdown()
        self._abort_if_closing_takes_long()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave no timer behind."""
        self._receive_timer = _stop(self._receive_timer)
        self._write_timer = _stop(self._write_timer)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    # What the parser calls

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head_bytes = 0
        if self._receive_timer is None:
            self._start_receive_timer()

    def on_url(self, url: bytes) -> None:
        """A piece of the URL."""
        super().on_url(url)
        if len(self.url) > self.limits.url_bytes:
            self._stop_parser(414, f"The URL is longer than {self.limits.url_bytes} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole field of the head (or of a chunked body's trailer)."""
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value) + 4
        if len(self.headers) > self.limits.head_fields or self._head_bytes > self.limits.head_bytes:
            self._stop_parser(
                431, f"The head has more than {self.limits.head_fields} fields or {self.limits.head_bytes} bytes."
            )

    def on_headers_complete(self) -> None:
        """The head is complete: the request goes to the application, and its body has its own time."""
        super().on_headers_complete()
        self._in_body = True
        self._received = 0
        self._start_receive_timer()

    def on_message_complete(self) -> None:
        """The request is complete; now it is our turn."""
        super().on_message_complete()
        self._in_body = False
        self._received = 0
        self._receive_timer = _stop(self._receive_timer)
        if self.cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is None:
            # The answer was given before its body had come: uvicorn's timer was undone by the body's last bytes.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def send_400_response(self, msg: str) -> None:
        """What the parser refused, or was made to refuse."""
        status, detail = self._refusal or (400, "This is not valid HTTP.")
        self._refuse(status, detail)

    # Refusals

    def _stop_parser(self, status: int, detail: str) -> None:
        self._refusal = (status, detail)
        raise ValueError(detail)  # the parser turns it into its own error, uvicorn calls send_400_response

    def _start_receive_timer(self) -> None:
        _stop(self._receive_timer)
        self._receive_timer = self.loop.call_later(self.limits.receive_s, self._receive_timed_out)

    def _receive_timed_out(self) -> None:
        if self._in_body and not self._is_answering():
            self.transport.abort()  # it was answered, but goes on sending
        elif self._in_body or self._received or self._is_answering():
            part = "body" if self._in_body else "head"
            self._refuse(408, f"The {part} of the request did not come within {self.limits.receive_s:g} seconds.")
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: int, detail: str, field: bytes = b"") -> None:
        """Hear nothing more from this client; tell it why, unless an answer is under way."""
        if self._deaf:
            return
        self._deaf = True
        self._receive_timer = _stop(self._receive_timer)
        self._unset_keepalive_if_required()
        if self._is_answering():
            if not self._in_body:  # an earlier request's answer comes first, and is the last
                self.cycle.keep_alive = False
                return
            if self.cycle.response_started or self.pipeline:
                self.transport.abort()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.transport.is_closing():
            return
        self.transport.write(_answer(status, detail, field))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(self.limits.linger_s, self.transport.abort)

    def _abort_if_closing_takes_long(self) -> None:
        if self.transport.is_closing() and self._write_timer is None:
            self._write_timer = self.loop.call_later(self.limits.write_s, self.transport.abort)


def _answer(status: int, detail: str, field: bytes) -> bytes:
    body = msgspec.json.encode(plain_problem(status, detail))
    security = b"".join(b"%s: %s\r\n" % (name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items())
    head = (
        b"content-type: application/problem+json\r\ncache-control: no-store\r\nconnection: close\r\n"
        b"content-length: %d\r\n" % len(body)
    )
    return STATUS_LINE[status] + head + field + security + b"\r\n" + body


def _stop(timer: TimerHandle | None) -> TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
