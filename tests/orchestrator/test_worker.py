"""What a worker makes of what its processor does, how it stops, and what it survives; on both kinds of server."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import lua
from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.errors import (
    InvalidOption,
    JobCanceled,
    LeaseLost,
    OutOfMemory,
    RetryLater,
    TransientError,
    UnrecoverableError,
)
from orchestrator.job import Job, JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.scripts import connect
from orchestrator.worker import BLOCK_S, Worker
from tests.conftest import wait_until
from tests.invariants import check_history, check_queue

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

Process = Callable[[ActiveJob], Awaitable[Any]]


async def ended(queue: Queue, *job_ids: str) -> list[Job]:
    """The jobs, once all of them have finished."""

    async def are() -> bool:
        jobs = [await queue.get_job(job_id) for job_id in job_ids]
        return all(job is None or job.state.is_finished for job in jobs)

    await wait_until(are)
    jobs = [await queue.get_job(job_id) for job_id in job_ids]
    return [job for job in jobs if job is not None]


async def run_one(queue: Queue, url: str, process: Process, options: JobOptions | None = None, **worker: Any) -> Job:
    """Run one job to its end."""
    job = await queue.add("paint", {"n": 1}, options)
    async with Worker(queue.name, process, url, **worker):
        (job,) = await ended(queue, job.id)
    check_history(await queue.get_history(job.id))
    return job


async def types(queue: Queue, job_id: str) -> list[str]:
    return [event.type for event in await queue.get_history(job_id)]


async def until_active(queue: Queue, count: int = 1) -> None:
    async def are() -> bool:
        return (await queue.get_counts())["active"] == count

    await wait_until(are)


async def steal(queue: Queue, job_id: str) -> None:
    """End the lease of a running job and put it back into the queue, before its worker can renew it."""
    async with queue.client.pipeline(transaction=True) as pipeline:
        pipeline.zadd(f"{queue.keys.prefix}active", {job_id: 1}, xx=True)
        pipeline.eval(lua.source("move_stalled_to_wait"), 2, queue.keys.meta, queue.keys.none, 60_000, 1000, 1)
        assert await pipeline.execute() == [0, 1]


@contextlib.asynccontextmanager
async def goes_on(work: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    """Do something again and again beside the test."""

    async def repeat() -> None:
        while True:
            await work()
            await asyncio.sleep(0.02)

    task = asyncio.create_task(repeat())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


# ── outcomes ─────────────────────────────────────────────────────────────────────────────────────────


async def test_what_the_processor_returns_is_the_result(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> Any:
        assert (job.name, job.data, job.run, job.attempt, job.attempts_made) == ("paint", {"n": 1}, 1, 1, 0)
        return {"ok": [None, "é"]}

    job = await run_one(queue, url, process, name="me")
    assert (job.state, job.result_as(dict), job.worker) == ("completed", {"ok": [None, "é"]}, "me")
    history = await queue.get_history(job.id)
    assert [event.type for event in history] == ["added", "active", "completed"]
    assert history[1].fields["worker"] == "me"


async def test_any_exception_costs_an_attempt_and_is_tried_again_after_the_backoff(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> str:
        if job.attempt < 4:
            raise ZeroDivisionError("oh")
        return "well"

    backoff = Backoff("exponential", 10, jitter=0.5)
    job = await run_one(queue, url, process, JobOptions(attempts=4, backoff=backoff))
    assert (job.state, job.attempts_made, job.error) == ("completed", 4, None)
    delayed = [event for event in await queue.get_history(job.id) if event.type == "delayed"]
    for event, longest in zip(delayed, (10, 20, 40), strict=True):
        assert longest / 2 <= event.fields["due_at"] - event.at <= longest
        assert event.fields["error"] == {"kind": "transient", "message": "oh", "details": {"type": "ZeroDivisionError"}}


@pytest.mark.parametrize(
    ("problem", "kind", "attempts"),
    [
        (UnrecoverableError("bad input", field="prompt"), "poison", 1),
        (OutOfMemory("no room"), "out_of_memory", 2),
        (TransientError("try again"), "transient", 2),
        (ValueError(), "transient", 2),
        (LeaseLost("of another job"), "transient", 2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
async def test_the_kind_of_error_decides_whether_another_attempt_follows(
    queue: Queue, url: str, problem: Exception, kind: str, attempts: int
) -> None:
    async def process(job: ActiveJob) -> None:
        raise problem

    job = await run_one(queue, url, process, JobOptions(attempts=2))
    assert job.error is not None
    assert (job.state, job.reason, job.error.kind, job.attempts_made) == ("failed", "error", kind, attempts)


@pytest.mark.parametrize("delay_ms", [30, 0, -5, 1.5], ids=str)
async def test_the_processor_may_name_the_pause_itself(queue: Queue, url: str, delay_ms: Any) -> None:
    async def process(job: ActiveJob) -> None:
        if job.attempt == 1:
            raise RetryLater("busy", delay_ms)

    job = await run_one(queue, url, process, JobOptions(attempts=2, backoff=3_600_000))
    assert (job.state, job.attempts_made) == ("completed", 2)


async def test_an_attempt_that_takes_too_long_is_cancelled_and_counts_as_a_timeout(queue: Queue, url: str) -> None:
    was_cancelled = asyncio.Event()

    async def process(job: ActiveJob) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    job = await run_one(queue, url, process, JobOptions(timeout_ms=50))
    assert was_cancelled.is_set()
    assert job.error is not None
    assert (job.state, job.reason, job.error.kind) == ("failed", "timeout", "timeout")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "problem",
    [
        Unspeakable(),
        ValueError("\ud800 lone"),
        ValueError("\x00" * 100_000),
        ValueError("🎨" * 100_000),
        UnrecoverableError("details", nan=math.nan, thing=object()),
        UnrecoverableError("details", long="x" * 10_000),
    ],
    ids=range(6),
)
async def test_no_exception_is_too_odd_to_be_recorded(queue: Queue, url: str, problem: Exception) -> None:
    async def process(job: ActiveJob) -> None:
        raise problem

    assert (await run_one(queue, url, process)).state == "failed"


@pytest.mark.parametrize("result", [math.nan, {"a": math.inf}, object(), "\ud800", "x" * 600_000], ids=range(5))
async def test_a_result_that_json_cannot_say_is_a_failure_and_not_tried_again(
    queue: Queue, url: str, result: Any
) -> None:
    async def process(job: ActiveJob) -> Any:
        return result

    job = await run_one(queue, url, process, JobOptions(attempts=3))
    assert job.error is not None
    assert (job.state, job.error.kind, job.attempts_made) == ("failed", "poison", 1)
    assert "result" in job.error.message


async def test_a_processor_that_is_cancelled_from_inside_uses_up_its_attempts(queue: Queue, url: str) -> None:
    """Were it handed back, it would start again for ever."""

    async def process(job: ActiveJob) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    job = await run_one(queue, url, process, JobOptions(attempts=2))
    assert (job.state, job.attempts_made) == ("failed", 2)


# ── telling ──────────────────────────────────────────────────────────────────────────────────────────


async def test_reports_arrive_in_order_and_progress_is_coalesced_to_the_newest(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        for step in range(1000):
            job.report_progress({"step": step})
        await job.milestone("denoised", {"at": 999})
        await job.update_progress("decoding")
        await job.set_preview(b"\x00RIFF", {"number": 1})
        await job.log("a line\nof two")
        job.report_progress("last")

    job = await run_one(queue, url, process, progress_interval_ms=60_000)
    told = [(e.type, e.fields) for e in await queue.get_history(job.id) if e.type in ("progress", "milestone")]
    assert told[-5:] == [
        ("progress", {"progress": {"step": 999}}),
        ("milestone", {"name": "denoised", "data": {"at": 999}}),
        ("progress", {"progress": "decoding"}),
        ("milestone", {"name": "preview_ready", "data": {"number": 1}}),
        ("progress", {"progress": "last"}),
    ]
    assert len(told) <= 6
    assert job.progress == "last"
    assert await queue.get_logs(job.id) == ["a line\nof two"]
    assert await queue.get_preview(job.id) == b"\x00RIFF"


@pytest.mark.parametrize("value", [math.nan, object(), "x" * 3000, "\ud800"], ids=range(4))
async def test_a_report_that_cannot_be_told_is_refused_and_the_job_goes_on(queue: Queue, url: str, value: Any) -> None:
    async def process(job: ActiveJob) -> int:
        refused = 0
        for tell in (job.update_progress, lambda data: job.milestone("m", data)):
            try:
                await tell(value)
            except InvalidOption:
                refused += 1
        with contextlib.suppress(InvalidOption):
            job.report_progress(value)
        with contextlib.suppress(InvalidOption):
            await job.milestone("x" * 1000)
        await job.log("\ud800" + "y" * 100_000)
        return refused

    job = await run_one(queue, url, process)
    assert job.result_as(int) == 2
    assert await types(queue, job.id) == ["added", "active", "completed"]


# ── cancel ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_processor_that_listens_stops_with_proof(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        await job.cancel_requested.wait()
        assert job.cancel is not None
        raise JobCanceled("stopped", step=3, by=job.cancel.by)

    job = await queue.add("paint")
    async with Worker(queue.name, process, url):
        await until_active(queue)
        await queue.cancel(job.id, by="me", reason="enough")
        (job,) = await ended(queue, job.id)
    assert job.state is JobState.CANCELED
    history = await queue.get_history(job.id)
    assert history[-1].fields == {"cancel": {"by": "me", "reason": "enough"}, "details": {"step": 3, "by": "me"}}


async def test_a_processor_that_does_not_listen_is_cancelled_after_the_grace(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        await asyncio.Event().wait()

    job = await queue.add("paint", None, JobOptions(attempts=5))
    other = await queue.add("paint", None, JobOptions(id="other"))
    async with Worker(queue.name, process, url, cancel_grace_ms=30):
        await until_active(queue)
        await queue.cancel(job.id)
        (job,) = await ended(queue, job.id)
        await until_active(queue)
        found = await queue.get_job(other.id)
        assert found is not None
        assert found.state is JobState.ACTIVE, "never another job"
        await queue.cancel(other.id)
    assert job.state is JobState.CANCELED
    assert await types(queue, job.id) == ["added", "active", "canceling", "canceled"]


async def test_a_processor_that_refuses_to_stop_loses_its_job(queue: Queue, url: str) -> None:
    end = asyncio.Event()
    lost: list[bool] = []

    async def process(job: ActiveJob) -> str:
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()
        lost.append(job.lost.is_set())
        return "too late"

    job = await queue.add("paint")
    async with Worker(queue.name, process, url, cancel_grace_ms=50, lease_ms=400, interval_ms=100):
        try:
            await until_active(queue)
            await queue.cancel(job.id)
            (job,) = await ended(queue, job.id)
        finally:
            end.set()
        after = await queue.add("paint", None, JobOptions(id="after"))
        await ended(queue, after.id)
    assert (job.state, lost[0]) == ("canceled", True)
    assert await types(queue, job.id) == ["added", "active", "canceling", "stalled", "canceled"]


async def test_a_cancel_that_races_with_the_end_hits_no_other_job(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> str:
        await asyncio.sleep(0.002)
        return job.id

    ids = [f"j{number}" for number in range(60)]
    for job_id in ids:
        await queue.add("paint", None, JobOptions(id=job_id))
    asked: set[str] = set()
    async with Worker(queue.name, process, url, cancel_grace_ms=1000):
        for job_id in ids[::2]:
            with contextlib.suppress(Exception):
                await queue.cancel(job_id)
                asked.add(job_id)
        jobs = await ended(queue, *ids)
    for job in jobs:
        assert job.state is JobState.COMPLETED or job.id in asked
        check_history(await queue.get_history(job.id))
    await check_queue(queue)


async def test_words_on_the_control_channel_that_nobody_understands_do_no_harm(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        await job.cancel_requested.wait()
        raise JobCanceled("stopped")

    job = await queue.add("paint")
    async with Worker(queue.name, process, url, lease_ms=60_000):
        await until_active(queue)
        for words in (b"", b" ", b"\xff\xfe", b"cancel", b"cancel  ", b"x" * 10_000):
            await queue.client.publish(queue.keys.control, words)
        await queue.cancel(job.id)
        (job,) = await ended(queue, job.id)
    assert job.state is JobState.CANCELED


# ── leases ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_job_longer_than_its_lease_is_held_and_runs_once(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        async def was_renewed_often() -> bool:
            score = await queue.client.zscore(f"{queue.keys.prefix}active", job.id)
            seen.add(score)
            return len(seen) > 6

        await wait_until(was_renewed_often)

    seen: set[float | None] = set()
    job = await run_one(queue, url, process, lease_ms=450, interval_ms=100)
    assert (job.state, job.stalled, job.attempts_started) == ("completed", 0, 1)


async def test_a_job_lost_here_may_start_again_in_another_lane_of_the_same_worker(queue: Queue, url: str) -> None:
    """Its first attempt ends late: that must neither be recorded, nor disturb the second one's lease."""
    first_may_end, second_may_end = asyncio.Event(), asyncio.Event()
    lost: list[bool] = []

    async def process(job: ActiveJob) -> int:
        if job.attempt == 1:
            while not first_may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await first_may_end.wait()
            lost.append(job.lost.is_set())
            return 1
        await second_may_end.wait()
        return job.attempt

    job = await queue.add("paint")
    worker = Worker(queue.name, process, url, concurrency=2, lease_ms=450, interval_ms=100)
    async with worker:
        await until_active(queue)
        try:
            await steal(queue, job.id)
            await until_active(queue)
        finally:
            first_may_end.set()
        await wait_until(lambda: bool(lost) and len(worker._attempts) == 1)
        renewed: set[float | None] = set()

        async def is_renewed() -> bool:
            renewed.add(await queue.client.zscore(f"{queue.keys.prefix}active", job.id))
            return len(renewed) > 4

        await wait_until(is_renewed)
        second_may_end.set()
        (job,) = await ended(queue, job.id)
    assert (job.state, job.result_as(int), job.attempts_started, job.stalled) == ("completed", 2, 2, 1)
    assert await types(queue, job.id) == ["added", "active", "stalled", "waiting", "active", "completed"]


async def test_a_processor_is_told_that_it_lost_its_job(queue: Queue, url: str) -> None:
    told: list[str] = []

    async def process(job: ActiveJob) -> None:
        if job.attempt == 1:
            try:
                await job.lost.wait()
            finally:
                told.append(job.lease)
                with contextlib.suppress(LeaseLost):
                    await job.update_progress("still here")
                    told.append("recorded")

    job = await queue.add("paint")
    async with Worker(queue.name, process, url, concurrency=2, lease_ms=450, interval_ms=100):
        await until_active(queue)
        await steal(queue, job.id)
        (job,) = await ended(queue, job.id)
        await wait_until(lambda: bool(told))
    assert (job.state, len(told)) == ("completed", 1)


# ── limits, order ────────────────────────────────────────────────────────────────────────────────────


async def test_a_delayed_job_starts_by_itself_and_not_before_its_time(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    async with Worker(queue.name, process, url, interval_ms=60_000):
        await wait_until(lambda: asyncio.sleep(0, True))
        added = [await queue.add("paint", None, JobOptions(delay_ms=ms)) for ms in (500, 200, 350)]
        jobs = await ended(queue, *[job.id for job in added])
    for job, before in zip(jobs, added, strict=True):
        assert job.started_at is not None
        assert before.due_at is not None
        assert job.started_at >= before.due_at
    assert sorted(jobs, key=lambda job: job.started_at or 0) == [jobs[1], jobs[2], jobs[0]]


async def test_the_rate_is_never_exceeded_in_any_window(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    await queue.set_global_rate_limit(3, 150)
    ids = [(await queue.add("paint")).id for _ in range(12)]
    async with Worker(queue.name, process, url, concurrency=4), Worker(queue.name, process, url, concurrency=4):
        jobs = await ended(queue, *ids)
    starts = sorted(job.started_at or 0 for job in jobs)
    assert all(later - early >= 150 for early, later in zip(starts, starts[3:], strict=False))
    assert [job.id for job in sorted(jobs, key=lambda job: job.started_at or 0)][:3] != []


async def test_a_freed_slot_of_the_global_concurrency_is_taken_by_the_next_at_once(queue: Queue, url: str) -> None:
    running = most = 0

    async def process(job: ActiveJob) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    await queue.set_global_concurrency(2)
    ids = [(await queue.add("paint")).id for _ in range(60)]
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(Worker(queue.name, process, url, concurrency=2))
        await ended(queue, *ids)
    assert most == 2


async def test_pausing_lets_running_jobs_end_and_resuming_starts_the_rest(queue: Queue, url: str) -> None:
    may_end = asyncio.Event()

    async def process(job: ActiveJob) -> None:
        await may_end.wait()

    ids = [(await queue.add("paint")).id for _ in range(6)]
    async with Worker(queue.name, process, url, concurrency=2):
        await until_active(queue, 2)
        await queue.pause()
        may_end.set()
        await ended(queue, *ids[:2])
        counts = await queue.get_counts()
        assert (counts["waiting"], counts["active"], counts["completed"]) == (4, 0, 2)
        await queue.resume()
        await ended(queue, *ids)


# ── stopping ─────────────────────────────────────────────────────────────────────────────────────────


async def test_an_idle_worker_stops_at_once(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    loop = asyncio.get_running_loop()
    took_s = []
    for _ in range(15):
        worker = Worker(queue.name, process, url, concurrency=3)
        async with worker:
            await wait_until(worker._looking.locked)
            began = loop.time()
            await worker.stop()
            took_s.append(loop.time() - began)
    assert sorted(took_s)[7] < BLOCK_S / 2, "half of them would wait longer if nothing ended the blocking read"


async def test_a_stopping_worker_lets_running_jobs_end(queue: Queue, url: str) -> None:
    may_end = asyncio.Event()

    async def process(job: ActiveJob) -> str:
        await may_end.wait()
        return "done"

    ids = [(await queue.add("paint")).id for _ in range(3)]
    worker = Worker(queue.name, process, url, concurrency=2)
    async with worker:
        await until_active(queue, 2)
        stopping = asyncio.create_task(worker.stop(grace_s=20))
        await wait_until(worker._stopping.is_set)
        may_end.set()
        await stopping
    counts = await queue.get_counts()
    assert (counts["completed"], counts["waiting"], counts["active"]) == (2, 1, 0)
    assert await types(queue, ids[2]) == ["added"]


async def test_a_job_longer_than_the_grace_is_handed_back_to_its_place_without_losing_an_attempt(
    queue: Queue, url: str
) -> None:
    async def process(job: ActiveJob) -> None:
        await asyncio.Event().wait()

    first = await queue.add("paint")
    second = await queue.add("paint")
    worker = Worker(queue.name, process, url)
    async with worker:
        await until_active(queue)
        await worker.stop(grace_s=0.01)
    assert [job.id for job in await queue.get_jobs([JobState.WAITING])] == [first.id, second.id]
    job = await queue.get_job(first.id)
    assert job is not None
    assert (job.attempts_made, job.stalled) == (0, 0)
    assert await types(queue, first.id) == ["added", "active", "waiting"]


async def test_a_claim_that_arrives_while_stopping_is_handed_back_at_once(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    async def process(job: ActiveJob) -> None:
        ran.append(job.id)
        await asyncio.Event().wait()

    worker = Worker(queue.name, process, url)
    claim = worker.queue.scripts.move_to_active
    claimed, go_on = asyncio.Event(), asyncio.Event()

    async def slow_claim(*args: Any) -> Any:
        answer = await claim(*args)
        if answer.claims:
            claimed.set()
            await go_on.wait()
        return answer

    monkeypatch.setattr(worker.queue.scripts, "move_to_active", slow_claim)
    job = await queue.add("paint")
    async with worker:
        await claimed.wait()
        stopping = asyncio.create_task(worker.stop())
        await wait_until(worker._stopping.is_set)
        go_on.set()
        await stopping
    assert ran == []
    assert await types(queue, job.id) == ["added", "active", "waiting"]


async def test_a_worker_may_be_stopped_before_it_runs_and_twice(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    await Worker(queue.name, process, url).stop()
    worker = Worker(queue.name, process, url)
    async with worker:
        await asyncio.gather(worker.stop(), worker.stop())


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"lease_ms": 1}, {"interval_ms": 0}, {"concurrency": True}], ids=str
)
async def test_a_worker_refuses_what_can_never_be_right(queue: Queue, url: str, options: dict[str, Any]) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    with pytest.raises(InvalidOption):
        Worker(queue.name, process, url, **options)


async def test_a_worker_name_of_any_length_fits_into_an_event(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    job = await run_one(queue, url, process, name="\x01\ud800🎨" * 5000)
    assert job.worker is not None
    assert len(json.dumps(job.worker)) < 1000


# ── trouble ──────────────────────────────────────────────────────────────────────────────────────────


async def quick(job: ActiveJob) -> str:
    await job.update_progress(1)
    return job.id


async def test_connections_that_are_killed_again_and_again_lose_no_job(queue: Queue, url: str) -> None:
    killer: Any = connect(url)

    async def kill_all() -> None:
        await killer.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await killer.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.sleep(0.05)

    ids = [f"j{number}" for number in range(200)]
    async with Worker(queue.name, quick, url, concurrency=4, lease_ms=5000), goes_on(kill_all):
        for job_id in ids:
            await queue.add("paint", None, JobOptions(id=job_id))
        await ended(queue, *ids)
    for job_id in ids:
        assert await types(queue, job_id) == ["added", "active", "progress", "completed"]
    await check_queue(queue)
    await killer.aclose()


async def test_scripts_that_the_server_forgets_again_and_again_are_sent_anew(queue: Queue, url: str) -> None:
    flusher = connect(url)

    async def flush() -> None:
        await flusher.script_flush()

    ids = [f"j{number}" for number in range(100)]
    async with Worker(queue.name, quick, url, concurrency=4), goes_on(flush):
        await asyncio.gather(*(queue.add("paint", None, JobOptions(id=job_id)) for job_id in ids))
        jobs = await ended(queue, *ids)
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    await flusher.aclose()


async def test_a_pool_smaller_than_the_burst_makes_callers_wait_and_fails_none(queue_name: str, url: str) -> None:
    client = connect(url, max_connections=5)
    queue = Queue(queue_name, client)
    async with Worker(queue.name, quick, client, concurrency=20):
        jobs = await asyncio.gather(*(queue.add("paint", number) for number in range(200)))
        done = await ended(queue, *[job.id for job in jobs])
    assert len({job.id for job in done if job.state is JobState.COMPLETED}) == 200
    await client.aclose()
