"""What chaos tests have in common: their sizes, what the processors wrote down, a load, what must hold at its end."""

import asyncio
import itertools
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any, TypeVar

from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from tests.chaos.worker_process import Work, ledger_key
from tests.conftest import wait_until
from tests.invariants import check_history, check_queue

LONG_S = 60.0
IS_FULL = os.environ.get("TEST_CHAOS") == "full"
Size = TypeVar("Size", int, float)
Spawn = Callable[..., "subprocess.Popen[bytes]"]


def size(small: Size, full: Size) -> Size:
    """`small` among the other tests, `full` under `make chaos`."""
    return full if IS_FULL else small


async def ledger(client: Any, queue: str, job_id: str) -> list[str]:
    """What the processors of a job wrote down."""
    return [entry.decode() for entry in await client.lrange(ledger_key(queue, job_id), 0, -1)]


async def count(queue: Queue, state: str) -> int:
    """How many jobs are in this state."""
    return (await queue.get_counts())[state]


async def until_completed(queue: Queue, *job_ids: str, timeout_s: float = 20.0) -> None:
    """Wait until all these jobs are completed."""
    waiting = list(job_ids)

    async def are() -> bool:
        while waiting:
            job = await queue.get_job(waiting[-1])
            if job is None or job.state is not JobState.COMPLETED:
                return False
            waiting.pop()
        return True

    await wait_until(are, timeout_s)


async def assert_completed_once(queue: Queue, job_id: str, books: Any = None) -> int:
    """Returns how often the job was started; `books` is a client of the ledger's server, if it is another one."""
    history = await queue.get_history(job_id)
    check_history(history)
    types = [event.type for event in history]
    assert types.count("completed") == 1
    assert types[-1] == "completed"
    done = await ledger(queue.client if books is None else books, queue.name, job_id)
    job = await queue.get_job(job_id)
    assert job is not None
    assert job.result is not None
    winner = job.result_as(str)
    assert winner == job.lease
    assert f"end {winner}" in done, "what is recorded is an attempt that did its work"
    return len({entry for entry in done if entry.startswith("start")})


class Load:
    """Jobs that are added all the time, and worker processes that do them. `gap_s`: the longest an add took."""

    def __init__(self, queue: Queue, spawn: Spawn, books: Any, **options: object) -> None:
        self.queue = queue
        self.ids: list[str] = []
        self.gap_s = 0.0
        self._spawn = spawn
        self._books = books
        self._options = options
        self._numbers = itertools.count()
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int) -> None:
        """Start worker processes."""
        self._workers += [self._spawn(self.queue.name, **self._options) for _ in range(workers)]

    def kill(self, place: int) -> None:
        """SIGKILL a worker and start another."""
        self._workers[place].kill()
        self._workers[place].wait(10)
        self._workers[place] = self._spawn(self.queue.name, **self._options)

    async def add(self, jobs: int, ms: int = 20, pause_s: float = 0.0) -> None:
        """Add jobs one after the other."""
        loop = asyncio.get_running_loop()
        for _ in range(jobs):
            began = loop.time()
            number = next(self._numbers)
            job = await self.queue.add("work", Work(ms=ms), JobOptions(id=f"j{number}", max_stalled=100))
            assert not job.duplicated
            self.gap_s = max(self.gap_s, loop.time() - began)
            self.ids.append(job.id)
            await asyncio.sleep(pause_s)

    async def until_added(self, jobs: int) -> None:
        """Wait until so many are added."""
        await wait_until(lambda: len(self.ids) >= jobs, LONG_S * 4)

    async def finish(self, timeout_s: float = LONG_S) -> int:
        """Wait until all are done, stop the workers, check everything; returns how many ran again."""

        counts: dict[str, int] = {}

        async def all_done() -> bool:
            counts.update(await self.queue.get_counts())
            return counts["completed"] >= len(self.ids)

        try:
            await wait_until(all_done, timeout_s)
        except BaseException:
            failed = await self.queue.get_jobs([JobState.FAILED])
            print(f"{len(self.ids)} were added; there are {counts}; {[(job.id, job.error) for job in failed]}")
            raise
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        ends = {await asyncio.to_thread(worker.wait, 20) for worker in self._workers}
        assert ends <= {0, -signal.SIGTERM}, "one may not have begun yet"
        await check_queue(self.queue)
        counts = await self.queue.get_counts()
        assert counts["failed"] == counts["waiting"] == counts["active"] == counts["delayed"] == 0
        starts = [await assert_completed_once(self.queue, job_id, self._books) for job_id in self.ids]
        return sum(starts) - len(starts)
