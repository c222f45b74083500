"""What the worker and its inference process say to each other, in frames of `orchestrator.frames`."""

import asyncio
from typing import BinaryIO, Literal

import msgspec

from orchestrator import frames
from orchestrator.frames import MAX_FRAME_BYTES, ProtocolError, pack

__all__ = ["MAX_FRAME_BYTES", "ProtocolError", "pack"]

FailureKind = Literal["transient", "poison", "out_of_memory"]


# From the worker to its inference process.


class Source(msgspec.Struct, frozen=True):
    """Where a model's weights lie: a folder, or (`is_hub`) an id of the hub."""

    location: str
    is_hub: bool = False


class Configure(msgspec.Struct, frozen=True, tag="configure"):
    """The first frame: everything that holds for the process's life. `preload` names the model to load at once."""

    models: dict[str, Source]
    preload: str | None
    device: str = "auto"
    threads: int = 1
    preview_every: int = 5


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Make the pictures of one attempt.

    `request` numbers the attempts of this process; every answer carries it, so that what is left over from an
    abandoned attempt is known for what it is. `economy` asks for the way that needs the least memory.
    """

    request: int
    model: str
    prompt: str
    negative_prompt: str
    width: int
    height: int
    steps: int
    guidance_scale: float
    seed: int
    num_images: int
    economy: bool = False


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop at the next step; answered by `Canceled`, or by how the attempt ended if that came first."""

    request: int


Command = Configure | Generate | Cancel


# From the inference process to its worker.


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Imports are done and the default model is loaded, or could not be (`preload_error`)."""

    device: str
    budget_bytes: int
    start_ms: int
    preload_error: str | None = None


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """Sent each second by a thread of its own: silence means a stopped or wedged process."""


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The model is there; `load_ms` is 0 if it was there already."""

    request: int
    load_ms: int


class Denoising(msgspec.Struct, frozen=True, tag="denoising"):
    """The prompt is encoded; picture `image` begins."""

    request: int
    image: int


class Step(msgspec.Struct, frozen=True, tag="step"):
    """Step `step` (1-based) of picture `image` (0-based) is done; it took `ms`, previews not counted."""

    request: int
    image: int
    step: int
    ms: float


class Preview(msgspec.Struct, frozen=True, tag="preview"):
    """How picture `image` looks after `step`: a WebP of a few kB."""

    request: int
    image: int
    step: int
    picture: bytes


class Picture(msgspec.Struct, frozen=True, tag="picture"):
    """A finished picture: a PNG."""

    request: int
    image: int
    seed: int
    width: int
    height: int
    png: bytes


class Done(msgspec.Struct, frozen=True, tag="done"):
    """All pictures are sent. `peak_bytes` is the most device memory the attempt held, where the device tells."""

    request: int
    denoise_ms: int
    decode_ms: int
    prompt_truncated: bool
    peak_bytes: int | None = None


class Canceled(msgspec.Struct, frozen=True, tag="canceled"):
    """Proof of stop: nothing of the attempt runs any more."""

    request: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The attempt failed."""

    request: int
    kind: FailureKind
    message: str


class Unusable(msgspec.Struct, frozen=True, tag="unusable"):
    """The process cannot work at all (torch is not installed, no such device …) and ends."""

    message: str


Answer = Loaded | Denoising | Step | Preview | Picture | Done | Canceled | Failed
Report = Ready | Alive | Unusable | Answer

_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
REPORTS: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def read_command(stream: BinaryIO) -> Command | None:
    """The next command, blocking; None when the worker has closed the pipe (or died)."""
    return frames.read(stream, _commands)


async def read_report(stream: asyncio.StreamReader) -> Report | None:
    """The next report; None when the inference process has closed the pipe (or died). Raises `ProtocolError`."""
    return await frames.read_async(stream, REPORTS)
