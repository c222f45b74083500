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
from orchestrator.scripts import Scripts, connect

JOB_CALLS = ("move_to_active", "update_progress", "add_log", "move_to_finished")


class Work(msgspec.Struct):
    """What a job of these tests asks for."""

    ms: int = 0
    chatty: bool = False
    kill: bool = False
    block: str = ""


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


def crash_at(call: int, when: str) -> None:
    """Let this process kill itself before or after its n-th call about jobs."""
    run = Scripts._run
    made = 0

    async def counting(self: Scripts, name: str, *args: Any) -> Any:
        nonlocal made
        if name not in JOB_CALLS:
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


async def work(options: argparse.Namespace) -> None:
    """Run a worker until this process is told to stop."""
    client = connect(options.ledger or options.url)

    async def process(job: ActiveJob) -> str:
        wish = job.data_as(Work)
        key = ledger_key(options.queue, job.id)
        await client.rpush(key, f"start {job.lease}")
        if wish.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if wish.chatty:
            await job.update_progress(1)
            await job.log("half way")
            await job.milestone("half")
        if wish.block:
            block(wish.block, wish.ms / 1000)
        else:
            await asyncio.sleep(wish.ms / 1000)
        await client.rpush(key, f"end {job.lease}")
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
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    async with worker:
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
    parser.add_argument("--when", default="before")
    options = parser.parse_args()
    if options.crash_at:
        crash_at(options.crash_at, options.when)
    asyncio.run(work(options))


if __name__ == "__main__":
    main()
