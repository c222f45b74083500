"""The limit on a request's body, as a pure ASGI middleware: by what is announced and by what arrives."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.problems import plain_problem, problem_response


class BodyLimit:
    """Answers 413 for bodies over `max_bytes`, before anything is read where the length is announced.

    What a client goes on sending after its answer is thrown away by the server, for as long as a body may take
    (`protocol.py`); closing at once would reset the connection and could take the answer with it.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting its body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        detail = f"The body is larger than {self.max_bytes} bytes."
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if length.isdigit() and int(length[:20]) > self.max_bytes:
            await problem_response(plain_problem(413, detail))(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise HTTPException(413, detail)
            return message

        await self.app(scope, counted, send)
