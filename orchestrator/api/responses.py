"""Responses made by msgspec."""

from typing import Any

import msgspec
from starlette.responses import Response


class JsonResponse(Response):
    """Any value that msgspec can encode, as JSON that nobody caches."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: dict[str, str] | None = None) -> None:
        super().__init__(content, status_code, {"Cache-Control": "no-store", **(headers or {})})

    def render(self, content: Any) -> bytes:
        """Encode."""
        return msgspec.json.encode(content)
