"""A worker process that chaos tests stop, kill, or let kill itself at a chosen call.

The processor writes what it did into a ledger beside the queue: a list per job, `start <lease>` and `end <lease>`.
"""

import argparse
import asyncio
import ctypes
import os
import signal
import time
from typing import Any

import msgspec

from orchestrator import ActiveJob, Worker
from orchestrator.keys import Keys
from orchestrator.scripts import Scripts, connect
from orchestrator.service import duties

JOB_CALLS = ("move_to_active", "update_progress", "add_log", "move_to_finished")


class Work(msgspec.Struct):
    """What a job of these tests asks for."""

    ms: int = 0
    chatty: bool = False
    kill: bool = False
    block: str = ""
    fail_once: bool = False


def ledger_key(queue: str, job_id: str) -> str:
    """Where a job's ledger is."""
    return f"ledger:{queue}:{job_id}"


def block(how: str, seconds: float) -> None:
    """Hold up the event loop: sleep | python | gil (a C call that lets no other thread run)."""
    match how:
        case "sleep":
            time.sleep(seconds)
        case "python":
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass
        case "gil":
            ctypes.PyDLL(None).usleep(round(seconds * 1_000_000))


def crash_at(call: int, when: str, calls: tuple[str, ...] = JOB_CALLS) -> None:
    """Let this process kill itself before or after its n-th of these calls."""
    run = Scripts._run
    made = 0

    async def counting(self: Scripts, name: str, *args: Any) -> Any:
        nonlocal made
        if name not in calls:
            return await run(self, name, *args)
        made += 1
        mine = made
        if mine == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await run(self, name, *args)
        if mine == call and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    Scripts._run = counting  # type: ignore[method-assign, assignment]


def skew_clock(skew_s: int) -> None:
    """Let this process see another time of day, which after a second jumps as far to the other side."""
    true_time, true_time_ns, began = time.time, time.time_ns, time.monotonic()

    def skewed_s() -> int:
        return skew_s if time.monotonic() - began < 1 else -skew_s

    time.time = lambda: true_time() + skewed_s()
    time.time_ns = lambda: true_time_ns() + skewed_s() * 1_000_000_000


async def work(options: argparse.Namespace) -> None:
    """Run a worker until this process is told to stop."""
    client: Any = connect(options.ledger or options.url)
    books = Scripts(client, Keys(options.queue))

    async def note(job: ActiveJob, line: str) -> None:
        await books.retrying("RPUSH", lambda: client.rpush(ledger_key(options.queue, job.id), f"{line} {job.lease}"))

    async def process(job: ActiveJob) -> str:
        wish = job.data_as(Work)
        await note(job, "start")
        if wish.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if wish.fail_once and job.attempt == 1:
            raise RuntimeError("as was asked")
        if wish.chatty:
            await job.update_progress(1)
            await job.log("half way")
            await job.milestone("half")
        if wish.block:
            block(wish.block, wish.ms / 1000)
        else:
            await asyncio.sleep(wish.ms / 1000)
        await note(job, "end")
        return job.lease

    worker = Worker(
        options.queue,
        process,
        options.url,
        concurrency=options.slots,
        lease_ms=options.lease_ms,
        interval_ms=options.interval_ms,
        stop_grace_s=options.grace_s,
        keeper=options.keeper == "yes",
        cancel_grace_ms=options.cancel_grace_ms,
    )
    looking_after = duties(worker.queue, lease_ms=options.lease_ms, interval_ms=options.interval_ms)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    async with looking_after if options.only_duties else worker:
        await stopping.wait()
    await client.aclose()


def main() -> None:
    """Read the command line and work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("queue")
    parser.add_argument("--ledger", default="")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--lease-ms", type=int, default=2000)
    parser.add_argument("--interval-ms", type=int, default=500)
    parser.add_argument("--grace-s", type=float, default=30.0)
    parser.add_argument("--keeper", default="yes")
    parser.add_argument("--cancel-grace-ms", type=int, default=5000)
    parser.add_argument("--crash-at", type=int, default=0)
    parser.add_argument("--only-duties", type=int, default=0)
    parser.add_argument("--crash-on", default="")
    parser.add_argument("--when", default="before")
    parser.add_argument("--skew-s", type=int, default=0)
    options = parser.parse_args()
    if options.crash_at:
        crash_at(options.crash_at, options.when, (options.crash_on,) if options.crash_on else JOB_CALLS)
    if options.skew_s:
        skew_clock(options.skew_s)
    asyncio.run(work(options))


if __name__ == "__main__":
    main()
