"""Request bodies: read whole, checked for type and depth, decoded by msgspec, refused with the field's name."""

import re
from typing import TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from orchestrator.errors import InvalidOption

T = TypeVar("T")

MAX_DEPTH = 64

# A string is matched as a whole; one without an end reaches to the end of the text, so the scan is linear.
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_INNERMOST = re.compile(rb"\[\]|\{\}")
_NOT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_PATH = re.compile(r"^(?P<problem>.*) - at `\$(?P<path>.*)`$", re.DOTALL)
_NAMED = re.compile(r"^Object (?P<problem>missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL)


async def read_json(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """The request's JSON body, validated.

    Raises `HTTPException` (400 not JSON or too deep, 415 not `application/json`) and `InvalidOption`, which names the
    field. Size and time are limited elsewhere: `limits.py`, `protocol.py`.
    """
    media_type, _, parameters = request.headers.get("content-type", "").partition(";")
    if media_type.strip().lower() != "application/json":
        raise HTTPException(415, "The body must be JSON, sent with Content-Type: application/json.")
    charset = parameters.strip().lower()
    if charset and charset.replace('"', "") not in ("charset=utf-8", "charset=utf8"):
        raise HTTPException(415, "JSON is sent in UTF-8; other character sets are not read.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "Compressed bodies are not read.")
    return decode(await request.body(), decoder)


def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """`body` as the decoder's type; errors as in `read_json`."""
    if is_too_deep(body):
        raise HTTPException(400, f"The JSON is nested deeper than {MAX_DEPTH} levels, or its brackets do not match.")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        raise _invalid_field(str(problem)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise HTTPException(400, f"The body is not valid JSON: {problem}.") from None


def is_too_deep(body: bytes) -> bool:
    """Whether the JSON may be nested deeper than `MAX_DEPTH`.

    msgspec descends on the C stack, and a small thread stack ends before its own limit does, and with it the process.
    Source: msgspec/msgspec#1033.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRINGS.sub(b"", body).translate(None, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):  # each round takes away the innermost level
        inner = _INNERMOST.sub(b"", brackets)
        if len(inner) == len(brackets):
            break
        brackets = inner
    return bool(brackets)


def _invalid_field(message: str) -> InvalidOption:
    """msgspec's message, taken apart: ``Expected `int` >= 64 - at `$.width` `` is the problem of `width`."""
    path = ""
    if match := _PATH.match(message):
        message, path = match["problem"], match["path"].lstrip(".")
    if match := _NAMED.match(message):
        path = f"{path}.{match['name']}".lstrip(".")
        message = "is required" if match["problem"].startswith("missing") else "is not a known field"
    # Elements are told by their list: `webhook_events[1]` belongs to the field `webhook_events`.
    field = re.sub(r"\[.*?\]", "", path) or "body"
    return InvalidOption(field[:100], message[:300])
