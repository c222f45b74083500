"""What processes of ours say to each other over a pipe: msgpack frames behind a four-byte length."""

import asyncio
import struct
from typing import Any, BinaryIO, TypeVar

import msgspec

T = TypeVar("T")

MAX_FRAME_BYTES = 64 * 1024 * 1024  # a 2048 × 2048 PNG of pure noise has 12.6 MB

_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()


class ProtocolError(Exception):
    """The other side said something that is not of this protocol; nothing it says can be trusted any more."""


def pack(frame: msgspec.Struct) -> bytes:
    """A frame as bytes, its length in front."""
    body = _encoder.encode(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(body)} bytes is too large")
    return _LENGTH.pack(len(body)) + body


def read(stream: BinaryIO, decoder: "msgspec.msgpack.Decoder[T]") -> T | None:
    """The next frame, blocking; None when the other side has closed the pipe (or died)."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    body = stream.read(_length(head))
    return decoder.decode(body) if len(body) == _length(head) else None


async def read_async(stream: asyncio.StreamReader, decoder: "msgspec.msgpack.Decoder[T]") -> T | None:
    """The next frame; None when the other side has closed the pipe (or died). Raises `ProtocolError`."""
    try:
        body = await stream.readexactly(_length(await stream.readexactly(_LENGTH.size)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as problem:
        raise ProtocolError(f"not a frame of this protocol: {problem}") from None


def _length(head: bytes) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {length} bytes is announced")
    return int(length)


def plain(value: Any) -> Any:
    """A value as msgpack can carry it without knowing its type; bytes stay bytes."""
    return msgspec.to_builtins(value, builtin_types=(bytes,))
