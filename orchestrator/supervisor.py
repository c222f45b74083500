"""Keeps programs running: starts them in stages, restarts what dies, stops them in the reverse order."""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from orchestrator.errors import StartFailed

LAUNCH = Path(__file__).with_name("launch.py")
MAX_LINE_BYTES = 16 * 1024
READY_POLL_S = 0.1
STEADY_S = 10.0  # who lived so long starts over with the shortest pause
MAX_FALSE_STARTS = 3
PATIENCE_S = 30.0

Report = Callable[[str, str], None]
"""Shows one line: who says it, and what."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to keep running.

    stage: programs of a stage are started when those of the stages before it are ready, and stopped before them.
    is_ready: asked until it says True, or raises `StartFailed`, which ends everything; `ready_line`: a text in a line
    of output. Without either, ready when started.
    grace_s: how long it may take to stop after SIGTERM; `hurry_s` the same when the user asked twice.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    stage: int = 0
    is_ready: Callable[[], Awaitable[bool]] | None = None
    ready_line: str | None = None
    grace_s: float = 10.0
    hurry_s: float = 0.0
    pass_fds: tuple[int, ...] = ()


class Supervisor:
    """Runs programs until `stop` is called (or one of them never manages to start).

    `pids` has the process ids of what runs now; each leads a process group of its own.
    """

    def __init__(self, programs: Sequence[Program], report: Report, *, first_pause_s: float = 0.5) -> None:
        self.children = [Child(program, report) for program in programs]
        self._report = report
        self._first_pause_s = first_pause_s
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._was_ready = False
        self._failure: StartFailed | None = None

    @property
    def pids(self) -> dict[str, int]:
        """Process id by name, of the programs that run."""
        return {child.program.name: child.process.pid for child in self.children if child.process is not None}

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Start everything, call `on_ready` once, keep everything running, and return when all has stopped.

        Raises `StartFailed` if a program never got ready because it died again and again, or its `is_ready` raised it.
        """
        async with asyncio.TaskGroup() as tasks:
            keepers: list[asyncio.Task[None]] = []
            starting = tasks.create_task(self._start(tasks, keepers, on_ready))
            await self._stopping.wait()
            starting.cancel()
            await self._stop_all()
            for keeper in keepers:
                keeper.cancel()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop everything; called again, without patience."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def _start(
        self, tasks: asyncio.TaskGroup, keepers: list[asyncio.Task[None]], on_ready: Callable[[], None]
    ) -> None:
        for stage in _stages(self.children):
            keepers.extend(tasks.create_task(self._keep(child)) for child in stage)
            for child in stage:
                await self._wait_ready(child)
                if child.refusal is not None:
                    self._fail(child.refusal)
                    return
        self._was_ready = True
        on_ready()

    async def _wait_ready(self, child: "Child") -> None:
        while True:
            if await _first_of(child.ready, timeout_s=PATIENCE_S):
                return
            self._report("kargah", f"still waiting for {child.program.name}")

    def _fail(self, failure: StartFailed) -> None:
        self._failure = failure
        self._stopping.set()

    async def _keep(self, child: "Child") -> None:
        name, pause_s = child.program.name, self._first_pause_s
        for restart in itertools.count(1):
            began = time.monotonic()
            try:
                fate = await child.run()
            except OSError as problem:  # no memory, no process ids left
                fate = f"cannot be started ({problem})"
            if self._stopping.is_set():
                return
            if restart >= MAX_FALSE_STARTS and not self._was_ready and not child.was_ready:
                self._report("kargah", f"{name} {fate}; that was start {restart}, giving up")
                self._fail(StartFailed(f"{name} does not start; its last lines are above"))
                return
            if time.monotonic() - began > STEADY_S:
                pause_s = self._first_pause_s
            self._report("kargah", f"{name} {fate}; restart {restart} in {pause_s:g} s")
            if await _first_of(self._stopping, timeout_s=pause_s):
                return
            pause_s = min(2 * pause_s, 30.0)

    async def _stop_all(self) -> None:
        for stage in reversed(_stages(self.children)):
            await asyncio.gather(*(child.stop(self._hurry) for child in stage))


class Child:
    """One program, and the process that runs it at the moment."""

    def __init__(self, program: Program, report: Report) -> None:
        self.program = program
        self.process: Process | None = None
        self.ready = asyncio.Event()
        self.was_ready = False
        self.refusal: StartFailed | None = None
        """Why it is of no use that it runs."""
        self._report = report
        self._gone = asyncio.Event()
        self._gone.set()

    async def run(self) -> str:
        """Run the program once, from start to end. Returns what became of it, as the end of a sentence."""
        launch = [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid()), *self.program.argv]
        async with _pipe() as (output, write_end):
            process = await asyncio.create_subprocess_exec(
                *launch,
                env={**os.environ, **self.program.env},
                stdin=DEVNULL,
                stdout=write_end,
                stderr=STDOUT,
                start_new_session=True,
                pass_fds=self.program.pass_fds,
            )
            write_end.close()
            self.process = process
            self._gone.clear()
            watching = asyncio.create_task(self._watch_ready())
            pumping = asyncio.create_task(self._pump(output))
            try:
                status = await process.wait()
            finally:
                watching.cancel()
                _kill_group(process.pid)  # what it left behind
                self.ready.clear()
                self.process = None
                try:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(1.0):
                            await pumping  # its last lines
                finally:
                    self._gone.set()
        return f"(pid {process.pid}) {_fate(status)}"

    async def stop(self, hurry: asyncio.Event) -> None:
        """SIGTERM, patience, SIGKILL. Returns when the process is gone."""
        process = self.process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        if await _first_of(self._gone, hurry, timeout_s=self.program.grace_s) is hurry:
            await _first_of(self._gone, timeout_s=self.program.hurry_s)
        if not self._gone.is_set():
            self._report("kargah", f"{self.program.name} (pid {process.pid}) does not stop; killing it")
            _kill_group(process.pid)
            await self._gone.wait()

    async def _watch_ready(self) -> None:
        program = self.program
        if program.is_ready is not None:
            try:
                while not await program.is_ready():
                    await asyncio.sleep(READY_POLL_S)
            except StartFailed as refusal:
                self.refusal = refusal
        if program.is_ready is not None or program.ready_line is None:
            self._set_ready()

    def _set_ready(self) -> None:
        if self.was_ready and not self.ready.is_set():
            self._report("kargah", f"{self.program.name} is ready again")
        self.ready.set()
        self.was_ready = True

    async def _pump(self, output: asyncio.StreamReader) -> None:
        async for line in _lines(output):
            self._report(self.program.name, line)
            if self.program.ready_line is not None and self.program.ready_line in line:
                self._set_ready()


def _stages(children: Sequence[Child]) -> list[list[Child]]:
    numbers = sorted({child.program.stage for child in children})
    return [[child for child in children if child.program.stage == number] for number in numbers]


def _fate(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


async def _first_of(*events: asyncio.Event, timeout_s: float) -> asyncio.Event | None:
    """The first of `events` that is set; None if none is in time."""
    waits = {asyncio.create_task(event.wait()): event for event in events}
    await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    return next((event for event in events if event.is_set()), None)


@contextlib.asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, IO[bytes]]]:
    """A pipe of our own: with asyncio's, `Process.wait` waits for whoever still holds its other end."""
    read_end, write_end = (os.fdopen(end, mode, buffering=0) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), read_end
    )
    try:
        yield reader, write_end
    finally:
        write_end.close()
        transport.close()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """The lines of a stream, whatever bytes and however long: control characters are dropped, long lines cut."""
    rest = b""
    while chunk := await stream.read(MAX_LINE_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _printable(line)
        if len(rest) > MAX_LINE_BYTES:
            yield _printable(rest)
            rest = b""
    if rest:
        yield _printable(rest)


def _printable(line: bytes) -> str:
    text = line.decode(errors="replace").expandtabs()
    return "".join(character for character in text if character.isprintable())
