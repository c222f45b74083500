"""A service made of prepared answers, on a real socket: what the client and the command line are tested against."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Answer = Callable[["Request"], None]


@dataclass
class Request:
    """A request, and how to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    handler: http.server.BaseHTTPRequestHandler = field(repr=False)

    def send(self, status: int, content: bytes, content_type: str = "application/json") -> None:
        self.handler.send_response(status)
        self.handler.send_header("Content-Type", content_type)
        self.handler.send_header("Content-Length", str(len(content)))
        self.handler.end_headers()
        self.handler.wfile.write(content)

    def stream(self, text: str) -> None:
        """Send `text` as server-sent events and hang up."""
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "text/event-stream")
        self.handler.send_header("Connection", "close")
        self.handler.end_headers()
        self.handler.wfile.write(text.encode())
        self.handler.close_connection = True


class FakeService:
    """Answers by `method path`; several answers to one are given one after the other, the last for ever."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self._answers: dict[str, list[Answer]] = {}

    def on(self, what: str, *answers: Answer) -> None:
        """Answer `what` ("GET /v1/models") with `answers`."""
        self._answers[what] = list(answers)

    def answer(self, request: Request) -> None:
        self.requests.append(request)
        answers = self._answers.get(f"{request.method} {request.path}", [problem(404, "there is no such thing")])
        (answers.pop(0) if len(answers) > 1 else answers[0])(request)


@contextmanager
def fake_service() -> Iterator[FakeService]:
    """A fake service on a free port."""
    service = FakeService()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path, headers = self.path.partition("?")[0], {name.lower(): value for name, value in self.headers.items()}
            service.answer(Request(self.command, path, headers, json.loads(body) if body else None, self))

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - names of the standard library

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def says(value: object, status: int = 200) -> Answer:
    """An answer in JSON."""
    return lambda request: request.send(status, json.dumps(value).encode())


def sends(content: bytes, content_type: str) -> Answer:
    """An answer that is a file."""
    return lambda request: request.send(200, content, content_type)


def streams(*events: str) -> Answer:
    """Server-sent events, then the end of the connection."""
    return lambda request: request.stream("".join(events))


def problem(status: int, detail: str, **fields: object) -> Answer:
    """A problem document."""
    return says({"type": "about:blank", "title": "Problem", "status": status, "detail": detail, **fields}, status)


def sse(event_type: str, event_id: str | None = None, **data: object) -> str:
    """One server-sent event."""
    return f"event: {event_type}\n" + (f"id: {event_id}\n" if event_id else "") + f"data: {json.dumps(data)}\n\n"


def generation(**changes: object) -> dict[str, object]:
    """A generation as the service shows it."""
    whole: dict[str, object] = {
        "id": "0123456789abcdefghjkmnpqrs",
        "status": "waiting",
        "run": 1,
        "attempt": 0,
        "attempts": 3,
        "priority": 100,
        "input": {
            "prompt": "a red circle",
            "negative_prompt": "",
            "model": "kargah/shapes",
            "width": 64,
            "height": 64,
            "steps": 20,
            "guidance_scale": 4.0,
            "seed": 7,
            "num_images": 1,
        },
        "created_at": 1_790_000_000_000,
        "a_field_of_the_future": [1, 2, 3],
    }
    return whole | changes
