"""One life of an inference process, from its start to its end: frames in, frames out, and a watch on its silence."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec

from orchestrator.errors import TransientError
from workers.protocol import (
    Alive,
    Answer,
    Cancel,
    Canceled,
    Command,
    Configure,
    Done,
    Failed,
    Generate,
    ProtocolError,
    Ready,
    Report,
    Unusable,
    pack,
    read_report,
)

SOURCE_TREE = Path(__file__).parent.parent
STOP_S = 2.0


class Patience(msgspec.Struct, frozen=True):
    """How long the inference process may take for what, in seconds.

    silence_s: between two frames; its heartbeat alone beats each second.
    start_silence_s: the same until it is ready, while imports may keep the heartbeat from beating.
    load_s: until it is ready, and until a model is loaded, which may mean a download.
    step_s: until the first step, and from the last one to the picture: the model's pace is not known there.
    pace, least_s: between two steps, `pace` times the slowest step so far, and at least `least_s`.
    abandon_s: from the word to stop until it has stopped, when nobody waits for the attempt any more.
    """

    silence_s: float = 30.0
    start_silence_s: float = 300.0
    load_s: float = 1800.0
    step_s: float = 600.0
    pace: float = 20.0
    least_s: float = 60.0
    abandon_s: float = 5.0
    tick_s: float = 1.0

    def between_steps_s(self, slowest_ms: float) -> float:
        """How long the next step may take."""
        return max(self.least_s, self.pace * slowest_ms / 1000)


class Life:
    """A running process. Its end, and whatever is wrong with it, is raised as `TransientError`.

    ended: a task that is done when the process is gone.
    """

    def __init__(self, process: asyncio.subprocess.Process, patience: Patience) -> None:
        self._process = process
        self._patience = patience
        self._reports: asyncio.Queue[Report | None] = asyncio.Queue()  # None: there will be no more
        self._heard = 0
        self._number = 0
        self._draining: asyncio.Task[None] | None = None
        self._end = ""
        self._signal: str | None = None
        self.ended = asyncio.create_task(self._read(), name=f"inference process {process.pid}")

    @classmethod
    async def begin(cls, command: Sequence[str], patience: Patience) -> "Life":
        """Start the process, in a session of its own: a Ctrl-C in the terminal is for the worker alone."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(_import_path())},
            )
        except OSError as problem:
            raise TransientError(f"the inference process cannot be started: {problem}") from None
        return cls(process, patience)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def end(self) -> TransientError:
        """Why it is gone."""
        return TransientError(
            f"the inference process {self._end}", **({"signal": self._signal} if self._signal else {})
        )

    async def configure(self, configuration: Configure) -> Ready:
        """The first thing to do with it."""
        self.send(configuration)
        report = await self.next_report(self._patience.load_s, self._patience.start_silence_s)
        match report:
            case Ready():
                return report
            case Unusable():
                self.kill(f"cannot work here: {report.message}")
            case _:
                self.kill(f"began with {type(report).__name__}")
        await asyncio.wait([self.ended])
        raise self.end

    def begin_attempt(self, request: Generate) -> "RunningAttempt":
        """Send a request, under the next number."""
        self._number += 1
        self.send(msgspec.structs.replace(request, request=self._number))
        return RunningAttempt(self, self._number, self._patience)

    def abandon(self, attempt: "RunningAttempt") -> None:
        """Nobody waits for the attempt any more. It must stop all the same, before there is another one."""
        attempt.cancel()
        self._draining = asyncio.create_task(self._drain(attempt), name=f"drain inference process {self.pid}")

    async def settle(self) -> bool:
        """Wait until nothing of an abandoned attempt is left; whether the process is still there."""
        if self._draining is not None:
            await asyncio.wait([self._draining])
        return not self.ended.done()

    def send(self, command: Command) -> None:
        """Say something; without effect when it is gone."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(pack(command))

    async def next_report(self, allowed_s: float, silence_s: float) -> Report:
        """The next report that is not a heartbeat. A process that is silent, or takes longer than allowed, is killed.

        The clock is not asked: ticks of our own are counted, so that a worker that was itself stopped for a while
        does not blame its child.
        """
        ticks = silent_ticks = 0
        while True:
            heard = self._heard
            try:
                async with asyncio.timeout(self._patience.tick_s):
                    report = await self._reports.get()
            except TimeoutError:
                ticks += 1
                silent_ticks = 0 if self._heard > heard else silent_ticks + 1
                if silent_ticks * self._patience.tick_s >= silence_s:
                    self.kill(f"gave no sign of life for {silence_s:g} s and was killed")
                elif ticks * self._patience.tick_s >= allowed_s:
                    self.kill(f"made no progress for {allowed_s:g} s and was killed")
                continue
            if report is None:
                self._reports.put_nowait(None)
                raise self.end
            return report

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
        if self._draining is not None:
            await asyncio.wait([self._draining])

    async def _read(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        try:
            while (report := await read_report(self._process.stdout)) is not None:
                self._heard += 1
                if not isinstance(report, Alive):
                    self._reports.put_nowait(report)
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

    async def _drain(self, attempt: "RunningAttempt") -> None:
        try:
            async with asyncio.timeout(self._patience.abandon_s):
                while not attempt.is_over:
                    await attempt.next_answer(self._patience.abandon_s)
        except TimeoutError:
            self.kill(f"did not stop within {self._patience.abandon_s:g} s and was killed")
            await asyncio.wait([self.ended])
        except TransientError:
            pass


class RunningAttempt:
    """An attempt in the hands of the process."""

    def __init__(self, life: Life, number: int, patience: Patience) -> None:
        self._life = life
        self._number = number
        self.patience = patience
        self.is_over = False

    def cancel(self) -> None:
        """Ask it to stop at the next step; the answer is `Canceled`, or whatever end came first."""
        self._life.send(Cancel(self._number))

    async def next_answer(self, allowed_s: float) -> Answer:
        """The next answer, due within `allowed_s`. Raises `TransientError` if the process is gone, or had to go."""
        while True:
            report = await self._life.next_report(allowed_s, self.patience.silence_s)
            if isinstance(report, Ready | Alive | Unusable) or report.request != self._number:
                self._life.kill(f"answered out of turn ({type(report).__name__}) and was killed")
                continue
            self.is_over = isinstance(report, Done | Canceled | Failed)
            return report


def _import_path() -> list[str]:
    """Where the child finds this package, also when it runs from a source tree that is not installed."""
    return [str(SOURCE_TREE), *filter(None, [os.environ.get("PYTHONPATH")])]
