"""The append-only file is cut at any byte, or the server is killed with everybody else: what is left is consistent."""

import asyncio
import contextlib
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.errors import UnrecoverableError, WrongState
from orchestrator.job import JobOptions, JobState, KeepJobs
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from orchestrator.worker import Worker
from tests.chaos.checks import IS_FULL, Load, Spawn, size
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.servers import Server

AOF = ("--appendonly", "yes", "--aof-load-truncated", "yes")


async def process(job: ActiveJob) -> str:
    """Ends in every way there is."""
    await job.update_progress(1)
    await job.log("a line")
    number = job.data_as(int)
    if number % 5 == 1 and job.attempt == 1:
        raise RuntimeError("once more")
    if number % 5 == 2:
        raise UnrecoverableError("never")
    return "x" * (3000 if number % 5 == 3 else 10)


async def live(queue: Queue) -> None:
    """Let every transition happen, several at a time."""
    keep = KeepJobs(count=20)
    async with Worker(queue.name, process, queue.client, concurrency=4, lease_ms=1000, interval_ms=50):
        for number in range(120):
            options = JobOptions(
                id=f"j{number}",
                attempts=2,
                backoff=Backoff("fixed", 30 * (number % 2)),
                delay_ms=20 * (number % 3),
                priority=number % 4,
                remove_on_complete=keep if number % 2 else KeepJobs(age_s=1),
                expires_ms=60_000 if number % 7 == 0 else 0,
            )
            await queue.add("paint", number, options)
            if number % 10 == 4:
                await queue.pause()
                await queue.add("paint", 0, JobOptions(id=f"c{number}", delay_ms=60_000))
                await queue.add("paint", 0, JobOptions(id=f"p{number}", delay_ms=60_000))
                await queue.change_priority(f"p{number}", 3)
                await queue.cancel(f"c{number}")
                await queue.promote(f"p{number}")
                await queue.resume()
            if number % 10 == 9:
                await queue.retry(f"c{number - 5}")
                await queue.add("paint", 0, JobOptions(id=f"r{number}", delay_ms=60_000))
                await queue.remove(f"r{number}")

        async def all_ended() -> bool:
            counts = await queue.get_counts()
            return counts["waiting"] == counts["active"] == counts["delayed"] == 0

        await wait_until(all_ended)


async def test_a_file_cut_at_any_byte_holds_a_consistent_queue(runtime_folder: Path, queue_name: str) -> None:
    draw = random.Random(7)
    folder = Path(tempfile.mkdtemp(dir=runtime_folder))
    server = Server("valkey", folder / "whole", *AOF)
    server.start()
    async with Queue(queue_name, server.url) as queue:
        await live(queue)
    server.kill()
    (file,) = (folder / "whole" / "appendonlydir").glob("*.incr.aof")
    length = file.stat().st_size
    for number in range(size(5, 40)):
        copy = folder / str(number)
        shutil.copytree(folder / "whole", copy, ignore=shutil.ignore_patterns("*.sock"))
        cut = draw.randrange(1, length)
        with next((copy / "appendonlydir").glob("*.incr.aof")).open("r+b") as torn:
            torn.truncate(cut)
        survivor = Server("valkey", copy, *AOF)
        survivor.start()
        async with Queue(queue_name, survivor.url) as queue:
            found = await check_queue(queue)
            print(f"cut at {cut} of {length}: {len(found)} keys")
            if number == 0:  # and it goes on
                async with Worker(queue_name, process, queue.client, concurrency=4, lease_ms=500, interval_ms=50):

                    async def all_ended(queue: Queue = queue) -> bool:
                        counts = await queue.get_counts()
                        return counts["waiting"] == counts["active"] == counts["delayed"] == 0

                    await queue.resume()
                    for job in await queue.get_jobs([JobState.DELAYED]):
                        with contextlib.suppress(WrongState):  # it became due meanwhile
                            await queue.promote(job.id)
                    await wait_until(all_ended)
                await check_queue(queue)
        survivor.stop()


@pytest.mark.parametrize(
    ("appendfsync", "seed"), [("everysec", 11), ("always", 12), ("always", 13)] if IS_FULL else [("always", 11)]
)
async def test_workers_and_the_server_are_killed_at_random_while_clients_add(
    runtime_folder: Path, queue_name: str, client: Client, url: str, spawn: Spawn, appendfsync: str, seed: int
) -> None:
    """A2 of shared/reliability.md, in full 300 kills; those of the API and the relay are in tests/webhooks and e2e."""
    draw = random.Random(seed)
    jobs, kills = size(300, 2000), size(8, 100)
    folder = Path(tempfile.mkdtemp(dir=runtime_folder))
    server = Server("valkey", folder, *AOF, "--appendfsync", appendfsync)
    server.start()
    async with Queue(queue_name, server.url) as queue:
        load = Load(queue, spawn, client, to=server.url, ledger=url, slots=4, lease_ms=2000, interval_ms=200)
        load.start(workers=3)
        adding = asyncio.create_task(load.add(jobs, pause_s=0.005))
        for kill in range(kills):
            await load.until_added(jobs * kill // kills)
            if kill % 5 == 2:
                server.kill()
                server.start()
            else:
                load.kill(draw.randrange(3))
        await adding
        again = await load.finish()
    print(f"{again} of {jobs} ran again, longest add {load.gap_s:.2f} s")
    assert again <= kills * 3 * 4, "at most one for each slot of each worker"
    server.stop()
