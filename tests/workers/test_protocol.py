"""Frames: what was said is what is heard, and nonsense is told apart."""

import asyncio
import io
import struct

import pytest

from workers.protocol import (
    MAX_FRAME_BYTES,
    Alive,
    Cancel,
    Configure,
    Picture,
    Preview,
    ProtocolError,
    Report,
    Source,
    Step,
    pack,
    read_command,
    read_report,
)


async def hear(content: bytes) -> list[Report]:
    stream = asyncio.StreamReader()
    stream.feed_data(content)
    stream.feed_eof()
    heard: list[Report] = []
    while (report := await read_report(stream)) is not None:
        heard.append(report)
    return heard


async def test_reports_arrive_as_they_were_sent() -> None:
    said: list[Report] = [Alive(), Step(1, 0, 3, 12.5), Preview(1, 0, 3, b"\x00\xff"), Picture(1, 0, 7, 8, 8, b"png")]
    assert await hear(b"".join(map(pack, said))) == said


def test_commands_arrive_as_they_were_sent() -> None:
    stream = io.BytesIO(pack(Configure({"m": Source("/m")}, "m")) + pack(Cancel(4)))
    assert read_command(stream) == Configure({"m": Source("/m")}, "m")
    assert read_command(stream) == Cancel(4)
    assert read_command(stream) is None


@pytest.mark.parametrize("cut", [1, 3, 4, 5, -1])
async def test_a_frame_that_is_cut_is_an_end(cut: int) -> None:
    frame = pack(Step(1, 0, 3, 12.5))
    assert await hear(frame[:cut]) == []
    assert read_command(io.BytesIO(pack(Cancel(1))[:cut])) is None


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">I", MAX_FRAME_BYTES + 1),
        b"Traceback (most recent call last):",
        struct.pack(">I", 3) + b"\xc1\xc1\xc1",
        pack(Cancel(1)),  # a command is not a report
    ],
)
async def test_what_is_no_report_is_an_error(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        await hear(content)


def test_a_frame_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(ProtocolError):
        pack(Preview(1, 0, 1, bytes(MAX_FRAME_BYTES)))
