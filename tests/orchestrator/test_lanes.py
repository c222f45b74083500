"""How a worker's calls go together: what one takes, how many are under way, and what becomes of each end in it."""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from redis import exceptions as redis_errors

from orchestrator.active_job import ActiveJob
from orchestrator.group import Batch
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.worker import Worker
from orchestrator.worker.lanes import LANES, MOST_AT_ONCE
from orchestrator.worker.running import MOST_BYTES
from tests.conftest import wait_until
from tests.invariants import check_history, check_queue
from tests.orchestrator.running import ended, steal, types, until_active

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


class Call(NamedTuple):
    """A call of a lane: how many ends it recorded, for how many slots it asked."""

    lane: str
    ends: int
    slots: int


class Calls:
    """Watches the calls of a worker's lanes; while `may_go_on` is not set it holds the answers to ends back."""

    def __init__(self, worker: Worker, look: Callable[[Call], None] = lambda call: None) -> None:
        self.made: list[Call] = []
        self.under_way = 0
        self.most_under_way = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self._look = look
        self._seen: list[int] = []
        self._run = worker.queue.scripts._run
        worker.queue.scripts._run = self._watched  # type: ignore[assignment, method-assign]

    def are_over(self) -> bool:
        """Whether none was made for a while, also none for a marker that was left over: the worker looks out."""
        self._seen.append(len(self.made) + self.under_way)
        return self._seen[-10:] == [self._seen[-1]] * 10 and self.under_way == 0

    async def _watched(self, name: str, *args: Any) -> Any:
        if name not in ("move_to_finished", "move_to_active"):
            return await self._run(name, *args)
        self.made.append(call := Call(args[1], (len(args) - 7) // 5, args[5]))
        self._look(call)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            answer = await self._run(name, *args)
            if call.ends:
                await self.may_go_on.wait()
            return answer
        finally:
            self.under_way -= 1


class Gate:
    """A processor whose jobs wait until it opens, and then end in one turn of the loop."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.is_open = asyncio.Event()

    async def process(self, job: ActiveJob) -> str:
        self.ran.append(job.id)
        await self.is_open.wait()
        return job.id


async def add(queue: Queue, count: int) -> list[str]:
    """So many jobs, in order."""
    ids = [f"j{number:03}" for number in range(count)]
    for job_id in ids:
        await queue.add("paint", None, JobOptions(id=job_id))
    return ids


def ends(calls: list[Call]) -> int:
    return sum(call.ends for call in calls)


async def test_what_ends_in_one_turn_goes_in_one_call_with_the_next_claims(queue: Queue, url: str) -> None:
    gate = Gate()
    ids = await add(queue, 4)
    worker = Worker(queue.name, gate.process, url, concurrency=8)
    calls = Calls(worker)
    async with worker:
        await wait_until(lambda: len(gate.ran) == 4 and worker._claimer.is_looking())
        before = len(calls.made)
        gate.is_open.set()
        await ended(queue, *ids)
    assert [(call.ends, call.slots) for call in calls.made[before:] if call.ends] == [(4, 4)]


async def test_a_single_slot_ends_a_job_and_claims_the_next_in_one_call(queue: Queue, url: str) -> None:
    gate = Gate()
    gate.is_open.set()
    ids = await add(queue, 20)
    worker = Worker(queue.name, gate.process, url)
    calls = Calls(worker)
    async with worker:
        await ended(queue, *ids)
        await wait_until(worker._claimer.is_looking)
    assert [(call.ends, call.slots) for call in calls.made[:21]] == [(0, 1), *[(1, 1)] * 20]
    assert gate.ran == ids


async def test_a_call_never_asks_for_more_than_is_free_and_two_are_under_way_at_most(queue: Queue, url: str) -> None:
    draw = random.Random(7)
    running = most = 0

    async def process(job: ActiveJob) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(draw.choice((0, 0, 0.001, 0.005)))
        running -= 1

    def look(call: Call) -> None:
        asked[call.lane] = call.slots
        assert running + call.slots <= worker.concurrency
        assert call.ends <= MOST_AT_ONCE >= call.slots

    asked: dict[str, int] = {}
    ids = await add(queue, 300)
    worker = Worker(queue.name, process, url, concurrency=11)
    calls = Calls(worker, look)
    async with worker:
        await ended(queue, *ids)
    assert most <= 11
    assert (len(asked), calls.most_under_way) == (LANES, LANES)
    assert ends(calls.made) == 300
    await check_queue(queue)


async def test_each_end_has_an_outcome_of_its_own(queue: Queue, url: str) -> None:
    gate = Gate()
    ids = await add(queue, 5)
    worker = Worker(queue.name, gate.process, url, concurrency=10, lease_ms=60_000)
    calls = Calls(worker)
    heard: list[tuple[str, str]] = []
    for what in ("completed", "lost"):
        worker.on(what, lambda event: heard.append((event.job.id, event.what)) if event.job else None)
    async with worker:
        await wait_until(lambda: len(gate.ran) == 5 and worker._claimer.is_looking())
        await queue.pause()
        await steal(queue, ids[2])
        gate.is_open.set()
        await wait_until(lambda: len(heard) == 5)
        assert heard == [(job_id, "lost" if job_id == ids[2] else "completed") for job_id in ids]
        assert Counter(call.ends for call in calls.made)[5] == 1, "one call"
        await queue.resume()
        await ended(queue, *ids)
    assert Counter(gate.ran)[ids[2]] == 2
    await check_queue(queue)


async def test_a_stop_while_a_call_is_under_way_hands_back_what_it_brings(queue: Queue, url: str) -> None:
    gate = Gate()
    ids = await add(queue, 12)
    worker = Worker(queue.name, gate.process, url, concurrency=4)
    calls = Calls(worker)
    async with worker:
        await wait_until(lambda: len(gate.ran) == 4)
        calls.may_go_on.clear()
        gate.is_open.set()
        await ended(queue, *ids[:4])
        await until_active(queue, 4)
        assert calls.under_way == 2
        stopping = asyncio.create_task(worker.stop())
        await wait_until(worker._stopping.is_set)
        calls.may_go_on.set()
        await stopping
    assert sorted(gate.ran) == ids[:4]
    for job_id in ids[:4]:
        assert await types(queue, job_id) == ["added", "active", "completed"]
    assert [job.id for job in await queue.get_jobs([JobState.WAITING])] == ids[4:]
    for job_id in ids[4:8]:
        assert await types(queue, job_id) == ["added", "active", "waiting"]
    await check_queue(queue)


async def test_what_ends_while_two_calls_are_under_way_goes_with_the_next(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        await asyncio.sleep(0.001)

    ids = await add(queue, 16)
    worker = Worker(queue.name, process, url, concurrency=16)
    calls = Calls(worker, lambda call: calls.may_go_on.clear() if call.ends else None)
    async with worker:
        await wait_until(lambda: ends(calls.made) + len(worker._runner.ended) == 16 and calls.under_way == 2)
        held = list(calls.made)
        calls._look = lambda call: None
        calls.may_go_on.set()
        await ended(queue, *ids)
        await wait_until(lambda: not worker._attempts)
    later = [call.ends for call in calls.made[len(held) :] if call.ends]
    assert len(later) == math.ceil((16 - ends(held)) / 8), "no more calls than it takes"
    assert (ends(calls.made), calls.most_under_way) == (16, 2)


async def test_a_job_that_comes_behind_an_answer_that_says_there_is_none_is_not_overlooked(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marker is read before that answer is, at a time when all slots are asked for."""
    monkeypatch.setattr("orchestrator.worker.claimer.BLOCK_S", 30.0)
    gates = {"j000": Gate(), "j001": Gate(), "j002": Gate(), "late": Gate()}

    async def process(job: ActiveJob) -> str:
        return await gates[job.id].process(job)

    await add(queue, 3)
    worker = Worker(queue.name, process, url, concurrency=3)
    calls = Calls(worker)
    async with worker:
        await wait_until(lambda: sum(len(gate.ran) for gate in gates.values()) == 3)
        gates["j000"].is_open.set()
        await wait_until(lambda: len(worker._attempts) == 2 and calls.are_over())
        calls.may_go_on.clear()
        gates["j001"].is_open.set()
        await ended(queue, "j001")
        assert worker._claimer.is_looking()
        await queue.add("paint", None, JobOptions(id="late"))
        await wait_until(lambda: not worker._claimer.is_looking())
        calls.may_go_on.set()
        await wait_until(lambda: gates["late"].ran == ["late"], 5)
        for gate in gates.values():
            gate.is_open.set()
        await ended(queue, *gates)


async def test_results_whose_answers_are_lost_are_recorded_once(queue: Queue, url: str) -> None:
    gate = Gate()
    gate.is_open.set()
    ids = await add(queue, 60)
    worker = Worker(queue.name, gate.process, url, concurrency=8)
    scripts, lost = worker.queue.scripts, 0
    evaluate = scripts._evaluate

    async def losing(name: str, args: Any, until: float) -> Any:
        nonlocal lost
        answer = await evaluate(name, args, until)
        if name.startswith("move_to_") and args[0] not in seen:
            seen.add(args[0])
            lost += 1
            raise redis_errors.ConnectionError("lost")
        return answer

    seen: set[str] = set()
    scripts._evaluate = losing  # type: ignore[method-assign]
    async with worker:
        jobs = await ended(queue, *ids)
        await wait_until(lambda: not worker._attempts)
    assert lost > 8
    assert sorted(gate.ran) == ids
    for job in jobs:
        assert job.result_as(str) == job.id
        assert await types(queue, job.id) == ["added", "active", "completed"]
        check_history(await queue.get_history(job.id))
    await check_queue(queue)


async def test_large_results_are_spread_over_calls(queue: Queue, url: str) -> None:
    gate = Gate()
    size = MOST_BYTES // 3

    async def process(job: ActiveJob) -> str:
        await gate.process(job)
        return "x" * size

    ids = await add(queue, 8)
    worker = Worker(queue.name, process, url, concurrency=16)
    calls = Calls(worker)
    async with worker:
        await wait_until(lambda: len(gate.ran) == 8)
        gate.is_open.set()
        jobs = await ended(queue, *ids)
    assert {len(job.result_as(str) or "") for job in jobs} == {size}
    assert max(call.ends for call in calls.made) == 3


@pytest.mark.parametrize("concurrency", [2, 5])
async def test_a_batch_takes_one_slot_and_ends_in_one_call(queue: Queue, url: str, concurrency: int) -> None:
    running = most = 0

    async def process(jobs: list[ActiveJob]) -> list[int]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return [1] * len(jobs)

    for number in range(40):
        await queue.add("paint", None, JobOptions(id=f"b{number}", batch_key="k"))
    worker = Worker(queue.name, process, url, concurrency=concurrency, batch=Batch(4))
    calls = Calls(worker)
    async with worker:
        await ended(queue, *[f"b{number}" for number in range(40)])
    assert 1 < most <= concurrency
    assert {call.ends % 4 for call in calls.made} == {0}, "the jobs of a batch go together"
    assert {call.slots for call in calls.made} <= {0, 4}, "one batch a call"
    await check_queue(queue)


async def test_a_processor_that_brings_the_worker_down_does_so_at_once(queue: Queue, url: str) -> None:
    class Odd(BaseException):
        pass

    async def process(job: ActiveJob) -> None:
        raise Odd

    await add(queue, 1)
    with pytest.raises(Odd):
        async with Worker(queue.name, process, url, concurrency=3) as worker:
            await worker._stopped.wait()
