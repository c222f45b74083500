"""A process of a sandbox: `python -m orchestrator.processors.child PARENT-PID`, spoken to over its standard streams."""

import asyncio
import faulthandler
import importlib
import inspect
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

import msgspec

from orchestrator.child_process import die_with, take_over_streams
from orchestrator.errors import LeaseLost
from orchestrator.frames import pack, plain, read
from orchestrator.job import CancelRequest, Job
from orchestrator.processors import messages
from orchestrator.processors.messages import Answer, Asked, Call, Command, Done, Halt, Load, Progress, Raised, Ready
from orchestrator.processors.messages import Run as RunJob
from orchestrator.processors.view import SyncJob, is_awaited_method

MAX_MESSAGE_CHARS = 500
TERMINATED = 128 + signal.SIGTERM


class Terminated(BaseException):
    """SIGTERM: raised in the main thread, so that what a function has opened is closed."""


class Child:
    """Two threads: the main one runs the function, one reads, so that a cancellation is heard in the middle of it.

    The reader also ends the process as soon as its worker is gone.
    """

    def __init__(self, commands: BinaryIO, reports: BinaryIO) -> None:
        self._commands = commands
        self._reports = reports
        self._sending = threading.Lock()
        self._calling = threading.Lock()
        self._jobs: queue.SimpleQueue[Load | RunJob] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._job: ChildJob | None = None

    def run(self) -> None:
        """Serve until the worker closes the pipe; return only if that is impossible from the start."""
        threading.Thread(target=self._read, daemon=True, name="commands").start()
        load = self._jobs.get()
        assert isinstance(load, Load)
        try:
            function = _import(load)
        except Exception as problem:
            self.send(Ready(f"{type(problem).__name__}: {problem}"[:MAX_MESSAGE_CHARS]))
            return
        self.send(Ready())
        while True:
            order = self._jobs.get()
            assert isinstance(order, RunJob)
            self.send(self._serve(function, ChildJob(self, msgspec.json.decode(order.job, type=Job))))

    def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Have the worker call a method of the job in hand."""
        with self._calling:
            self.send(Call(method, plain(list(args)), plain(kwargs)))
            answer = self._answers.get()
        if answer.problem is not None:
            raise messages.rebuild(answer.problem)
        return answer.value

    def send(self, report: messages.Report) -> None:
        """Say something to the worker."""
        with self._sending:
            try:
                self._reports.write(pack(report))
                self._reports.flush()
            except BrokenPipeError:
                os._exit(0)

    def _serve(self, function: Callable[[Any], Any], job: "ChildJob") -> Done | Raised:
        self._job = job
        try:
            is_async = inspect.iscoroutinefunction(function)
            result = asyncio.run(job.on_a_loop(function)) if is_async else function(job)
            return Done(msgspec.json.encode(result))
        except Terminated:
            raise
        except (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as problem:
            return Raised(messages.describe(problem))
        finally:
            self._job = None

    def _read(self) -> NoReturn:
        try:
            while (command := read(self._commands, messages.COMMANDS)) is not None:
                self._take(command)
        except Exception:
            traceback.print_exc()
        os._exit(0)  # nothing of ours is worth finishing: the attempt belongs to nobody any more

    def _take(self, command: Command) -> None:
        match command:
            case Load() | RunJob():
                self._jobs.put(command)
            case Answer():
                self._answers.put(command)
            case Asked() if self._job is not None:
                self._job.ask(CancelRequest(command.by, command.reason))
            case Halt() if self._job is not None:
                self._job.halt()


class ChildJob(SyncJob):
    """A job in a sandbox's process: what it does is done by the worker."""

    def __init__(self, child: Child, job: Job) -> None:
        self.job = job
        self.cancel_requested = self._asked = threading.Event()
        self._child = child
        self._cancel: CancelRequest | None = None
        self._is_halted = False
        self._on_ask: Callable[[], object] = lambda: None
        self._on_halt: Callable[[], object] = lambda: None

    @property
    def cancel(self) -> CancelRequest | None:
        return self._cancel

    def report_progress(self, value: Any) -> None:
        self._check()
        self._child.send(Progress(msgspec.json.encode(value)))

    def ask(self, cancel: CancelRequest) -> None:
        """The job was canceled."""
        self._cancel = cancel
        self._asked.set()
        self._on_ask()

    def halt(self) -> None:
        """The attempt has to end."""
        self._is_halted = True
        self._on_halt()

    async def on_a_loop(self, function: Callable[["AsyncChildJob"], Any]) -> Any:
        """Run an async function, which is cancelled when the attempt has to end."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(function(AsyncChildJob(self)))
        self._on_halt = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._is_halted:
            task.cancel()
        return await task

    def _get(self, name: str) -> Any:
        return self._call(name)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return self._child.call(method, args, kwargs)

    def _check(self) -> None:
        if self._is_halted:
            raise LeaseLost(f"the attempt of job {self.id} has to end")


class AsyncChildJob:
    """The same for an async function: what takes time is awaited, and `cancel_requested` is an `asyncio.Event`."""

    def __init__(self, job: ChildJob) -> None:
        loop = asyncio.get_running_loop()
        self._job = job
        self.cancel_requested = asyncio.Event()
        job._on_ask = lambda: loop.call_soon_threadsafe(self.cancel_requested.set)
        if job.cancel_requested.is_set():
            self.cancel_requested.set()

    def __getattr__(self, name: str) -> Any:
        if not is_awaited_method(name):
            return getattr(self._job, name)
        method = getattr(self._job, name)
        return lambda *args, **kwargs: asyncio.to_thread(method, *args, **kwargs)


def _import(load: Load) -> Callable[[Any], Any]:
    sys.path[:] = load.import_path
    module, _, names = load.target.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"{load.target} is no function")
    function: Callable[[Any], Any] = found
    return function


def _terminate(number: int, frame: object) -> NoReturn:
    raise Terminated


def main() -> None:
    """Run a sandbox's process."""
    commands, reports = take_over_streams()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what was printed before a crash is seen
    die_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then stops us
    signal.signal(signal.SIGTERM, _terminate)
    faulthandler.enable()
    try:
        Child(commands, reports).run()
    except Terminated:
        os._exit(TERMINATED)
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # an orderly exit would wait for the thread that reads


if __name__ == "__main__":
    main()
