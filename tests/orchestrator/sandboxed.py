"""Functions that tests run in a sandbox."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from orchestrator import ActiveJob, SyncJob
from orchestrator.errors import InvalidOption, JobCanceled, LeaseLost, RetryLater, UnrecoverableError

jobs = 0


class Result(msgspec.Struct):
    """A result that only JSON knows."""

    pid: int
    jobs: int


def echo(job: SyncJob) -> Result:
    global jobs
    jobs += 1
    return Result(os.getpid(), jobs)


def tells(job: SyncJob) -> dict[str, Any]:
    assert (job.name, job.data, job.run, job.attempt, job.attempts_made) == ("paint", {"n": 1}, 1, 1, 0)
    assert job.attempt_key == f"1-{job.lease}"
    assert (job.cancel, job.cancel_requested.is_set()) == (None, False)
    for tell in (job.update_progress, job.milestone):
        try:
            tell("x" * 5000)
        except InvalidOption:
            continue
        raise AssertionError("it should be too long")
    job.update_progress(1)
    job.milestone("half", {"of": "it"})
    job.set_preview(b"\x00webp", 7)
    job.log("a line")
    job.report_progress(99)
    print("printed in the sandbox")
    return {"in": job.id}


def gathers(job: SyncJob) -> Any:
    """The processor of a flow whose children come while their parent runs."""
    if job.name == "page":
        return job.data
    while not any(job.get_dependencies_count()):
        time.sleep(0.01)
    job.wait_for_children()
    return sorted(job.get_children_values().values())


async def tells_async(job: Any) -> str:
    await asyncio.gather(*(job.update_progress(n) for n in range(3)))
    await job.milestone("half")
    job.report_progress(4)
    assert not job.cancel_requested.is_set()
    return str(job.id)


class OwnError(UnrecoverableError):
    """A user's own."""

    kind = "own"


def raises(job: SyncJob) -> None:
    match job.data:
        case "poison":
            raise UnrecoverableError("never", field="prompt")
        case "later":
            raise RetryLater("later", 20, n=1)
        case "their own poison":
            raise OwnError("no", why="not")
        case "foreign":
            raise ZeroDivisionError("oh")
        case "exit":
            sys.exit(3)
        case "unprintable":
            raise OSError("\ud800")
        case "no json":
            return object()  # type: ignore[return-value]


def dies(job: SyncJob) -> str:
    if job.attempt > 1:
        return "well"
    match job.data:
        case "exit":
            os._exit(7)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def listens(job: SyncJob) -> None:
    job.update_progress(1)
    job.cancel_requested.wait()
    assert job.cancel is not None
    raise JobCanceled("stopped", by=job.cancel.by, pid=os.getpid())


async def listens_async(job: Any) -> None:
    await job.update_progress(1)
    await job.cancel_requested.wait()
    raise JobCanceled("stopped", by=job.cancel.by, pid=os.getpid())


async def sleeps_async(job: Any) -> None:
    await job.update_progress(1)
    await asyncio.sleep(600)


def talks(job: SyncJob) -> None:
    """Stops when nobody hears it."""
    try:
        while True:
            job.update_progress(1)
            time.sleep(0.02)
    except LeaseLost:
        Path(job.data).write_text("heard")
        raise


def cleans_up(job: SyncJob) -> None:
    """Hears nothing, and is ended by SIGTERM."""
    try:
        job.update_progress(1)
        time.sleep(600)
    finally:
        Path(job.data).write_text("clean")


def clings(job: SyncJob) -> None:
    """Hears nothing at all: only SIGKILL ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    job.update_progress(os.getpid())
    ctypes.PyDLL(None).sleep(600)


def eats(job: SyncJob) -> None:
    """As the kernel ends a process that took too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def short(job: SyncJob) -> str:
    """A few milliseconds of work, which may be canceled."""
    if job.cancel_requested.wait(0.01):
        raise JobCanceled("stopped")
    return job.id


def short_and_deaf(job: SyncJob) -> str:
    """The same without an ear for it."""
    time.sleep(0.01)
    return job.id


def survives(job: SyncJob) -> int:
    """Takes SIGTERM for a hint."""
    if job.data != "quick":
        with contextlib.suppress(BaseException):
            time.sleep(600)
    return os.getpid()


def looks(job: SyncJob) -> str:
    """Reads what only the worker knows."""
    ActiveJob.secret = property(lambda job: "unknown here")  # type: ignore[attr-defined]
    return f"{job.secret} and {len(job.data)}"


async def looks_async(job: Any) -> str:
    """The same."""
    return looks(job)
