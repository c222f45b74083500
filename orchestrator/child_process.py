"""Processes of ours that do what must not happen in a worker's own: how they begin, speak and end.

Source: extracted from the inference process of `workers/`, which was the first one.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, TypeVar

import msgspec

from orchestrator.errors import TransientError
from orchestrator.frames import ProtocolError, pack, read_async

R = TypeVar("R")

SOURCE_TREE = Path(__file__).parent.parent
STOP_S = 2.0
PR_SET_PDEATHSIG = 1


class ChildProcess(Generic[R]):
    """A running process that sends frames of type `R`. Its end, and whatever is wrong with it, is a `TransientError`.

    ended: a task that is done when the process is gone.
    """

    what: ClassVar[str] = "child process"
    decoder: ClassVar["msgspec.msgpack.Decoder[Any]"]

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._reports: asyncio.Queue[R | None] = asyncio.Queue()  # None: there will be no more
        self._end = ""
        self._signal: str | None = None
        self.ended = asyncio.create_task(self._read(), name=f"{self.what} {process.pid}")

    @classmethod
    async def _spawn(cls, command: Sequence[str]) -> asyncio.subprocess.Process:
        """Start the process, in a session of its own: a Ctrl-C in the terminal is for the worker alone."""
        try:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(_import_path())},
            )
        except OSError as problem:
            raise TransientError(f"the {cls.what} cannot be started: {problem}") from None

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def end(self) -> TransientError:
        """Why it is gone."""
        return TransientError(f"the {self.what} {self._end}", **({"signal": self._signal} if self._signal else {}))

    def send(self, frame: msgspec.Struct) -> None:
        """Say something; without effect when it is gone."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(pack(frame))

    def terminate(self) -> None:
        """Ask the process itself to end."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self, because: str) -> None:
        """End it at once, with all it has forked. The first reason given is the one that counts.

        A helper may hold our pipes when the process itself is long gone, so that is no reason to spare the group. After
        `ended` it is: the number may be another's.
        """
        if self.ended.done():
            return
        self._end = self._end or because
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Let it go: it ends when its input does, or it is killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end = self._end or "was stopped"
        await asyncio.wait([self.ended], timeout=STOP_S)
        self.kill("")
        await asyncio.wait([self.ended])

    def _received(self, report: R) -> None:
        """Called for each frame as it comes."""
        self._reports.put_nowait(report)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        try:
            while (report := await read_async(self._process.stdout, self.decoder)) is not None:
                self._received(report)
        except ProtocolError as problem:
            self.kill(f"spoke another language ({problem}) and was killed")
        # Where the pipe ended first, the process is dying of itself, and the kill comes too late to change its status.
        status = await self._wait()
        self._end = self._end or self._explain(status)
        self.kill("")  # what it left behind
        self._process.stdin.close()
        self._reports.put_nowait(None)

    async def _wait(self) -> int:
        try:
            async with asyncio.timeout(STOP_S):
                return await self._process.wait()
        except TimeoutError:
            has_ended = self._process.returncode is not None  # and a helper holds its input
            self.kill("" if has_ended else "closed its pipe and was killed")
            return await self._process.wait()

    def _explain(self, status: int) -> str:
        if status >= 0:
            return f"ended with status {status}"
        self._signal = signal.Signals(-status).name
        hint = "; did the machine run out of memory?" if self._signal == "SIGKILL" else ""
        return f"was killed by {self._signal}{hint}"


# ── in the child ─────────────────────────────────────────────────────────────────────────────────────────


def take_over_streams() -> tuple[BinaryIO, BinaryIO]:
    """Keep the standard streams for the protocol: what a library prints goes to stderr, what it reads is empty."""
    commands = os.fdopen(os.dup(0), "rb")
    reports = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands, reports


def die_with(parent: int) -> None:
    """Be killed when the worker dies. The end of the pipe says the same; this also ends a process that cannot read."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the worker is gone")


def _import_path() -> list[str]:
    """Where the child finds this package, also when it runs from a source tree that is not installed."""
    return [str(SOURCE_TREE), *filter(None, [os.environ.get("PYTHONPATH")])]
