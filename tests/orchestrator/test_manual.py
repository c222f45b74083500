"""Claiming by hand: jobs are asked for, held, and ended by a program of its own."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.errors import LeaseLost, UnrecoverableError, WrongState
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.worker import ClaimedJob, Worker
from tests.conftest import wait_until
from tests.faultproxy import FaultProxy
from tests.invariants import check_queue
from tests.orchestrator.running import steal, types
from tests.servers import Server

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def next_job(worker: Worker, timeout_s: float = 10) -> ClaimedJob:
    job = await worker.get_next_job(timeout_s)
    assert job is not None
    return job


async def test_each_way_to_end_a_job_leads_to_its_state(queue: Queue, url: str) -> None:
    ids = [(await queue.add("paint", number, JobOptions(attempts=2))).id for number in range(6)]
    async with Worker(queue.name, None, url, name="by hand") as worker:
        job = await next_job(worker)
        assert (job.id, job.data, job.attempt) == (ids[0], 0, 1)
        await job.update_progress(50)
        assert await job.move_to_completed({"ok": True}) is JobState.COMPLETED
        assert await (await next_job(worker)).move_to_failed(UnrecoverableError("bad")) is JobState.FAILED
        assert await (await next_job(worker)).move_to_failed("again") is JobState.WAITING
        assert await (await next_job(worker)).move_to_delayed(100_000) is JobState.DELAYED
        held = await next_job(worker)
        assert held.id == ids[4]
        await held.checkpoint("half")
        assert await held.move_to_wait() is JobState.WAITING
        again = await next_job(worker)
        assert (again.id, again.checkpoint_value, again.attempts_made) == (ids[4], "half", 0)
    done = await queue.get_job(ids[0])
    assert done is not None
    assert (done.result_as(dict), done.worker) == ({"ok": True}, "by hand")
    counts = await queue.get_counts()
    assert (counts["completed"], counts["failed"], counts["delayed"], counts["waiting"]) == (1, 1, 1, 3)
    await check_queue(queue)


async def test_leaving_hands_back_what_is_in_hand(queue: Queue, url: str) -> None:
    job = await queue.add("paint")
    async with Worker(queue.name, None, url) as worker:
        held = await next_job(worker)
    assert await types(queue, job.id) == ["added", "active", "waiting"]
    with pytest.raises(LeaseLost):
        await held.move_to_completed()
    found = await queue.get_job(job.id)
    assert found is not None
    assert (found.attempts_made, found.stalled) == (0, 0)


async def test_the_lease_is_renewed_as_long_as_the_job_is_in_hand(queue: Queue, url: str) -> None:
    job = await queue.add("paint")
    async with Worker(queue.name, None, url, lease_ms=300, interval_ms=50) as worker:
        held = await next_job(worker)
        loop = asyncio.get_running_loop()
        until = loop.time() + 1.2
        await wait_until(lambda: loop.time() > until)
        await held.extend_lock(5000)
        assert await held.move_to_completed() is JobState.COMPLETED
    assert await types(queue, job.id) == ["added", "active", "completed"]


async def test_never_more_than_concurrency_are_in_hand(queue: Queue, url: str) -> None:
    for _ in range(5):
        await queue.add("paint")
    async with Worker(queue.name, None, url, concurrency=2) as worker:
        first, _ = await next_job(worker), await next_job(worker)
        assert await worker.get_next_job(0.05) is None
        assert worker.health.active == 2
        third = asyncio.create_task(next_job(worker))
        await first.move_to_completed()
        await third
        worker.concurrency = 3
        await next_job(worker)
        assert (await queue.get_counts())["active"] == 3


async def test_asking_an_empty_queue_ends_in_time_and_a_later_job_wakes_who_asks(queue: Queue, url: str) -> None:
    loop = asyncio.get_running_loop()
    async with Worker(queue.name, None, url, concurrency=3) as worker:
        for timeout_s in (0, 0.05):
            began = loop.time()
            assert await worker.get_next_job(timeout_s) is None
            assert loop.time() - began < 1.5
        asking = [asyncio.create_task(worker.get_next_job(20)) for _ in range(3)]
        await wait_until(worker._claimer.is_looking)
        ids = {(await queue.add("paint")).id for _ in range(3)}
        jobs = await asyncio.gather(*asking)
        assert {job.id for job in jobs if job is not None} == ids


async def test_an_immediate_look_takes_what_is_there(queue: Queue, url: str) -> None:
    await queue.add("paint")
    async with Worker(queue.name, None, url) as worker:
        assert await worker.get_next_job(0) is not None


async def test_who_gives_up_asking_leaves_no_job_behind(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await queue.add("paint")
    async with Worker(queue.name, None, url) as worker:
        claim = worker.queue.scripts.move_to_active
        claimed, go_on = asyncio.Event(), asyncio.Event()

        async def slow_claim(*args: object) -> object:
            answer = await claim(*args)  # type: ignore[arg-type]
            claimed.set()
            await go_on.wait()
            return answer

        monkeypatch.setattr(worker.queue.scripts, "move_to_active", slow_claim)
        asking = asyncio.create_task(worker.get_next_job())
        await claimed.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        monkeypatch.undo()
        go_on.set()

        async def is_back() -> bool:
            return await types(queue, job.id) == ["added", "active", "waiting"]

        await wait_until(is_back)
        assert (await next_job(worker)).id == job.id


async def test_a_job_that_another_worker_has_cannot_be_ended_and_takes_no_slot(queue: Queue, url: str) -> None:
    job = await queue.add("paint", None, JobOptions(max_stalled=2))
    async with Worker(queue.name, None, url) as worker:
        held = await next_job(worker)
        await steal(queue, job.id)
        with pytest.raises(LeaseLost):
            await held.move_to_completed()
        again = await next_job(worker)
        assert again.id == job.id
        await steal(queue, job.id)
        await wait_until(again.lost.is_set)  # the renewal tells
        third = await next_job(worker)
        assert await third.move_to_completed() is JobState.COMPLETED


async def test_a_job_is_ended_once(queue: Queue, url: str) -> None:
    await queue.add("paint")
    async with Worker(queue.name, None, url) as worker:
        held = await next_job(worker)
        await held.move_to_completed()
        with pytest.raises(WrongState):
            await held.move_to_failed("too late")


async def test_a_canceled_job_in_hand_is_told_and_ends_as_canceled(queue: Queue, url: str) -> None:
    job = await queue.add("paint", None, JobOptions(attempts=3, backoff=Backoff(delay_ms=10)))
    async with Worker(queue.name, None, url) as worker:
        held = await next_job(worker)
        await queue.cancel(job.id)
        await held.cancel_requested.wait()
        assert await held.move_to_failed("stopped") is JobState.CANCELED


async def test_a_program_that_leaves_without_redis_is_let_go(
    queue: Queue, server: Server, runtime_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("worker", "worker.claimer", "worker.manual"):
        monkeypatch.setattr(f"orchestrator.{room}.LAST_CALLS_S", 0.5)
    await queue.add("paint")
    async with FaultProxy(runtime_folder / f"manual-{server.kind}", server.socket) as proxy:
        worker = Worker(queue.name, None, proxy.url)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(worker)
            job = await next_job(worker)
            job.report_progress("never told")
            await stack.enter_async_context(proxy.blackhole())
            async with asyncio.timeout(10):
                await worker.stop()
    assert (await queue.get_counts())["active"] == 1


async def test_asking_by_hand_needs_a_worker_without_a_processor_that_runs(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    async with Worker(queue.name, process, url) as worker:
        with pytest.raises(WrongState):
            await worker.get_next_job(1)
    by_hand = Worker(queue.name, None, url)
    with pytest.raises(WrongState):
        await by_hand.get_next_job(1)
    await by_hand.stop()


async def test_a_paused_worker_or_queue_gives_nothing(queue: Queue, url: str) -> None:
    await queue.add("paint")
    async with Worker(queue.name, None, url) as worker:
        await worker.pause()
        assert await worker.get_next_job(0.05) is None
        worker.resume()
        await queue.pause()
        assert await worker.get_next_job(0.05) is None
        await queue.resume()
        await next_job(worker)
