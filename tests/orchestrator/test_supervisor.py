"""The supervisor: starts, restarts and stops real (small) processes."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from orchestrator.errors import StartFailed
from orchestrator.supervisor import Program, Supervisor

SLEEPER = "print('ready', flush=True); import signal; signal.pause()"
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True: signal.pause()
"""


class Run:
    """A supervisor that runs in the background, and all it has reported."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.lines: list[str] = []
        self.is_ready = asyncio.Event()
        self.supervisor = Supervisor(programs, self._report, first_pause_s=0.01)
        self.task = asyncio.create_task(self.supervisor.run(self.is_ready.set))

    def _report(self, name: str, line: str) -> None:
        self.lines.append(f"{name}: {line}")

    def says(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                assert not self.task.done(), self.lines
                await asyncio.sleep(0.01)

    async def ready(self) -> "Run":
        await self.until(self.is_ready.is_set)
        return self

    async def end(self) -> None:
        self.supervisor.stop()
        async with asyncio.timeout(20):
            await self.task


@contextlib.asynccontextmanager
async def running(*programs: Program) -> AsyncIterator[Run]:
    run = Run(programs)
    try:
        yield run
    finally:
        run.supervisor.stop()
        run.supervisor.stop()
        await asyncio.wait([run.task], timeout=20)


def python(name: str, code: str, **options: object) -> Program:
    options.setdefault("ready_line", "ready")
    return Program(name=name, argv=[sys.executable, "-c", textwrap.dedent(code)], **options)  # type: ignore[arg-type]


async def test_a_killed_program_is_restarted_and_the_report_says_why() -> None:
    async with running(python("sleeper", SLEEPER)) as run:
        await run.ready()
        first = run.supervisor.pids["sleeper"]
        os.kill(first, signal.SIGKILL)
        await run.until(lambda: run.says("sleeper is ready again"))
        assert run.supervisor.pids["sleeper"] != first
        assert f"kargah: sleeper (pid {first}) was killed by SIGKILL; restart 1 in 0.01 s" in run.lines


async def test_a_program_that_ends_by_itself_is_restarted_with_longer_and_longer_pauses() -> None:
    async with running(python("hasty", "print('ready'); raise SystemExit(3)"), python("sleeper", SLEEPER)) as run:
        await run.until(lambda: run.says("restart 3 in 0.04 s"))
        assert run.says("ended with exit code 3; restart 1 in 0.01 s")
        assert run.says("ended with exit code 3; restart 2 in 0.02 s")


async def test_a_program_that_never_gets_ready_ends_everything() -> None:
    async with running(
        python("broken", "print('no such folder'); raise SystemExit(1)"), python("sleeper", SLEEPER)
    ) as run:
        with pytest.raises(StartFailed, match="broken does not start"):
            await asyncio.wait_for(run.task, 20)
        assert "broken: no such folder" in run.lines
        assert run.supervisor.pids == {}


async def test_a_program_that_is_of_no_use_ends_everything_and_what_comes_after_it_never_starts() -> None:
    async def is_ready() -> bool:
        raise StartFailed("its data are too old")

    async with running(
        python("store", SLEEPER, is_ready=is_ready, ready_line=None), python("later", SLEEPER, stage=1)
    ) as run:
        with pytest.raises(StartFailed, match="its data are too old"):
            await asyncio.wait_for(run.task, 20)
        assert not run.says("later")
        assert run.supervisor.pids == {}


async def test_a_later_stage_starts_when_the_earlier_one_is_ready_and_stops_before_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = """
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: (print("stopped", flush=True), sys.exit()))
        print("started", flush=True)
        while True: signal.pause()
    """

    async def gate_is_open() -> bool:
        return gate.exists()

    store = python("store", code, is_ready=gate_is_open, ready_line=None)
    async with running(store, python("user", code, stage=1, ready_line="started")) as run:
        await run.until(lambda: "store: started" in run.lines)
        assert "user" not in run.supervisor.pids
        gate.touch()
        await run.ready()
        await run.end()
        assert run.lines == ["store: started", "user: started", "user: stopped", "store: stopped"]


async def test_a_program_that_ignores_the_polite_signal_is_killed_after_its_grace() -> None:
    async with running(python("stubborn", STUBBORN, grace_s=0.05)) as run:
        await run.ready()
        await run.end()
        assert run.says("stubborn (pid")
        assert run.says("does not stop; killing it")


async def test_a_report_that_fails_does_not_keep_anybody_from_stopping() -> None:
    def report(name: str, line: str) -> None:
        raise OSError(errno.EIO, "the terminal is gone")

    is_ready = asyncio.Event()
    supervisor = Supervisor([python("sleeper", SLEEPER, ready_line=None)], report)
    task = asyncio.create_task(supervisor.run(is_ready.set))
    async with asyncio.timeout(20):
        await is_ready.wait()
        await asyncio.sleep(0.5)  # its line has been reported
        supervisor.stop()
        await task


async def test_asking_twice_does_not_wait_for_the_grace() -> None:
    async with running(python("stubborn", STUBBORN, grace_s=3600)) as run:
        await run.ready()
        run.supervisor.stop()
        await run.end()
        assert run.says("does not stop; killing it")


async def test_what_a_killed_program_left_behind_is_killed_too(tmp_path: Path) -> None:
    note = tmp_path / "child"
    code = f"""
        import pathlib, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        pathlib.Path({str(note)!r}).write_text(str(child.pid))
        print("ready", flush=True)
        child.wait()
    """
    async with running(python("parent", code)) as run:
        await run.ready()
        orphan = int(note.read_text())
        os.kill(run.supervisor.pids["parent"], signal.SIGKILL)
        await run.until(lambda: not is_alive(orphan))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's wish on the parent's death is Linux's")
async def test_programs_stop_when_their_supervisor_is_killed() -> None:
    code = f"""
        import asyncio, sys
        from orchestrator.supervisor import Program, Supervisor
        program = Program(name="sleeper", argv=[sys.executable, "-c", {SLEEPER!r}], ready_line="ready")
        supervisor = Supervisor([program], print)
        asyncio.run(supervisor.run(lambda: print(supervisor.pids["sleeper"], flush=True)))
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        sleeper = int(next(line for line in process.stdout if line.strip().isdigit()))
        process.kill()
    async with asyncio.timeout(20):
        while is_alive(sleeper):
            await asyncio.sleep(0.01)


async def test_output_is_shown_line_by_line_without_control_characters_and_never_endless() -> None:
    code = r"""
        import sys
        sys.stdout.buffer.write(b"a\x1b[31mred\xff\tend\r\n" + b"x" * 100_000 + b"\nlast")
        sys.stdout.flush()
        print("\nready", flush=True)
        import signal; signal.pause()
    """
    async with running(python("noisy", code)) as run:
        await run.ready()
        assert run.lines[0].startswith("noisy: a[31mred�")
        assert run.lines[0].endswith("end")
        assert max(len(line) for line in run.lines) < 50_000
        assert "noisy: last" in run.lines


def is_alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
