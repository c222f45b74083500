"""Functions that run in processes of their own, which may crash, leak and hang without harm to the worker."""

import asyncio
import contextlib
import os
import sys
from typing import Any, ClassVar

import msgspec

from orchestrator.active_job import MAX_REPORT_BYTES, ActiveJob
from orchestrator.child_process import ChildProcess
from orchestrator.errors import InvalidOption, JobCanceled, KargahError, TransientError
from orchestrator.frames import plain
from orchestrator.job import check_int
from orchestrator.log import get_logger
from orchestrator.processors import messages
from orchestrator.processors.messages import Answer, Asked, Call, Done, Halt, Load, Progress, Raised, Ready, Run
from orchestrator.processors.view import is_awaited_method, is_property

log = get_logger("worker")

MAX_JOBS_PER_PROCESS = 1_000_000_000


class Sandbox(msgspec.Struct, frozen=True):
    """A function that runs in child processes: `Worker("paint", Sandbox("my_package.painting:paint"), url)`.

    target: `module:function`; the child imports it by the worker's own `sys.path`. It may be plain (it gets a
        `SyncJob`, in the main thread) or async (an event loop for each call). Its result is JSON.
    jobs_per_process: a child is replaced after so many jobs; for functions that leak.
    start_s: how long starting and importing may take.

    There are at most as many children as the worker's concurrency; each serves one job after the other. One that
    crashes fails its attempt with a `TransientError`, and is replaced. One that has to stop is asked first (in the
    view; an async function is cancelled), then gets SIGTERM (an exception in its main thread), then SIGKILL. What it
    prints goes to the worker's stderr.

    Source: BullMQ's sandboxed processors.
    """

    target: str
    jobs_per_process: int = MAX_JOBS_PER_PROCESS
    start_s: float = 60.0

    def __post_init__(self) -> None:
        check_int("jobs_per_process", self.jobs_per_process, 1, MAX_JOBS_PER_PROCESS)
        module, colon, function = self.target.partition(":")
        names = [*module.split("."), *function.split(".")]
        if not colon or not all(name.isidentifier() for name in names):
            raise InvalidOption("target", "must be written module:function")
        if module == "__main__":
            raise InvalidOption("target", "must be in a module that another process can import, not in the script")


class SandboxPool:
    """The processes of a sandbox."""

    has_own_process = True

    def __init__(self, sandbox: Sandbox, cancel_grace_ms: int) -> None:
        self._sandbox = sandbox
        self._grace_s = cancel_grace_ms / 1000
        self._idle: list[SandboxProcess] = []
        self._all: set[SandboxProcess] = set()

    async def start(self) -> None:
        """Start one, so that a function that cannot be imported is found before it could fail a job."""
        try:
            self._idle.append(await self._begin())
        except TransientError as problem:
            raise InvalidOption("processor", str(problem)) from None

    async def __call__(self, job: ActiveJob) -> Any:
        process = await self._take()
        try:
            return await _Attempt(process, job, self._grace_s).run()
        finally:
            self._give_back(process)

    async def stop(self) -> None:
        """End the processes, whatever they are doing."""
        await asyncio.gather(*(process.close() for process in self._all))
        self._all.clear()

    async def _take(self) -> "SandboxProcess":
        while self._idle:
            process = self._idle.pop()
            if not process.ended.done():
                return process
        return await self._begin()

    def _give_back(self, process: "SandboxProcess") -> None:
        process.jobs += 1
        if process.ended.done():
            return
        if process.is_free and not process.is_doomed and process.jobs < self._sandbox.jobs_per_process:
            self._idle.append(process)
        else:
            process.kill("has served its jobs" if process.is_free else "was left in the middle of a job")

    async def _begin(self) -> "SandboxProcess":
        command = [sys.executable, "-P", "-m", "orchestrator.processors.child", str(os.getpid())]
        process = await SandboxProcess.begin(command)
        self._all.add(process)
        process.ended.add_done_callback(lambda _: self._all.discard(process))
        try:
            await process.load(self._sandbox)
        except BaseException:
            process.kill("could not be used")
            raise
        log.debug("sandbox.ready", pid=process.pid, target=self._sandbox.target)
        return process


class SandboxProcess(ChildProcess[messages.Report]):
    """One process of a sandbox.

    is_free: whether the function has returned; only then may there be another job.
    is_doomed: whether it was told to end; the signal may reach it at any time, so it gets no other job.
    """

    what = "processor's process"
    decoder: ClassVar["msgspec.msgpack.Decoder[Any]"] = messages.REPORTS

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self.is_free = True
        self.is_doomed = False
        self.jobs = 0
        self.job: ActiveJob | None = None

    @classmethod
    async def begin(cls, command: list[str]) -> "SandboxProcess":
        """Start it."""
        return cls(await cls._spawn(command))

    async def load(self, sandbox: Sandbox) -> None:
        """The first thing to do with it. Raises `TransientError`."""
        self.send(Load(sandbox.target, [str(place) for place in sys.path]))
        try:
            async with asyncio.timeout(sandbox.start_s):
                report = await self.next_report()
        except TimeoutError:
            raise TransientError(f"{sandbox.target} was not imported within {sandbox.start_s:g} s") from None
        if not isinstance(report, Ready) or report.problem is not None:
            problem = report.problem if isinstance(report, Ready) else f"it began with {type(report).__name__}"
            raise TransientError(f"{sandbox.target} cannot be used: {problem}")

    async def next_report(self) -> messages.Report:
        """The next report that is not progress. Raises `TransientError` when the process is gone."""
        report = await self._reports.get()
        if report is None:
            self._reports.put_nowait(None)
            raise self.end
        return report

    def _received(self, report: messages.Report) -> None:
        if not isinstance(report, Progress):
            super()._received(report)
        elif self.job is not None and len(report.value) <= MAX_REPORT_BYTES:
            self.job.report_progress(msgspec.Raw(report.value))


class _Attempt:
    """One job in the hands of a sandbox's process."""

    def __init__(self, process: SandboxProcess, job: ActiveJob, grace_s: float) -> None:
        self._process = process
        self._job = job
        self._grace_s = grace_s
        self._is_halted = False

    async def run(self) -> Any:
        process = self._process
        process.is_free, process.job = False, self._job
        process.send(Run(msgspec.json.encode(self._job.job)))
        following = asyncio.create_task(self._follow())
        asked = asyncio.create_task(self._pass_cancel_on())
        try:
            await asyncio.wait([following])
        except asyncio.CancelledError:
            await self._stop(following)
            following.cancel()  # it may wait for an answer to the function, which nobody needs any more
            await asyncio.wait([following])
            if following.cancelled() or not isinstance(following.exception(), JobCanceled | None):
                raise
        finally:
            asked.cancel()
            process.job = None
        return following.result()

    async def _follow(self) -> Any:
        """Do what the function asks for, until it ends."""
        while True:
            report = await self._process.next_report()
            match report:
                case Done():
                    self._process.is_free = True
                    return msgspec.Raw(report.result)
                case Raised():
                    self._process.is_free = True
                    raise messages.rebuild(report.problem)
                case Call():
                    self._process.send(await self._answer(report))
                case _:
                    self._process.kill(f"spoke out of turn ({type(report).__name__}) and was killed")

    async def _answer(self, call: Call) -> Answer:
        if is_property(call.method):
            return Answer(plain(getattr(self._job, call.method)))
        if not is_awaited_method(call.method):
            return Answer(problem=messages.Problem("InvalidOption", f"a job has no method {call.method!r}"))
        try:
            return Answer(plain(await getattr(self._job, call.method)(*call.args, **call.kwargs)))
        except (KargahError, TypeError) as problem:
            return Answer(problem=messages.describe(problem))

    async def _pass_cancel_on(self) -> None:
        await self._job.cancel_requested.wait()
        cancel = self._job.cancel
        self._process.send(Asked(cancel.by if cancel else "", cancel.reason if cancel else ""))

    async def _stop(self, following: "asyncio.Task[Any]") -> None:
        """Make it stop, however it takes: asked (a canceled job was, long ago), told, killed. Returns when it has."""
        process, short_s = self._process, self._grace_s / 4
        process.send(Halt())
        if await _is_done(short_s if self._job.cancel_requested.is_set() else 2 * short_s, following, process.ended):
            return
        process.is_doomed = True
        process.terminate()
        if await _is_done(short_s, following, process.ended):
            return
        process.kill("did not stop when asked and was killed")
        await _is_done(None, process.ended)


async def _is_done(timeout_s: float | None, *tasks: "asyncio.Task[Any]") -> bool:
    """Whether one of these is, after a wait that nobody who cancels cuts short: all this has its end."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout_s is None else loop.time() + timeout_s
    while not any(task.done() for task in tasks) and (deadline is None or loop.time() < deadline):
        with contextlib.suppress(asyncio.CancelledError):
            left_s = None if deadline is None else deadline - loop.time()
            await asyncio.wait(tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    return any(task.done() for task in tasks)
