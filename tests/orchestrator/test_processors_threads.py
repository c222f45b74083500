"""Plain functions as processors: each in a thread, with a view of the job that needs no event loop."""

import asyncio
import contextvars
import functools
import sys
import threading
import time
from typing import Any

import pytest

from orchestrator import SyncJob
from orchestrator.active_job import ActiveJob
from orchestrator.errors import InvalidOption, JobCanceled, LeaseLost, RetryLater, UnrecoverableError
from orchestrator.job import JobOptions
from orchestrator.processors import OnTheLoop, Sandbox, SandboxPool, Threads, runner_of
from orchestrator.queue import Queue
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.invariants import check_history, check_queue
from tests.orchestrator.running import ended, run_one, steal, types, until_active

WAIT_S = 20.0


# ── which kind ───────────────────────────────────────────────────────────────────────────────────────


async def on_loop(job: ActiveJob) -> None:
    pass


def in_thread(job: SyncJob) -> None:
    pass


class CallsOnLoop:
    async def __call__(self, job: ActiveJob) -> None:
        pass


class CallsInThread:
    def __call__(self, job: SyncJob) -> None:
        pass


async def with_more(more: int, job: ActiveJob) -> None:
    pass


def test_the_kind_of_function_decides_where_it_runs() -> None:
    processors: list[Any] = [on_loop, CallsOnLoop(), functools.partial(with_more, 1)]
    assert all(isinstance(runner_of(processor, 1000), OnTheLoop) for processor in processors)
    processors = [in_thread, CallsInThread(), functools.partial(in_thread), lambda job: 1]
    assert all(isinstance(runner_of(processor, 1000), Threads) for processor in processors)
    assert isinstance(runner_of(Sandbox("m:f"), 1000), SandboxPool)
    nothing: Any = "m:f"
    with pytest.raises(InvalidOption):
        runner_of(nothing, 1000)


async def test_a_plain_function_that_returns_something_to_await_has_it_awaited(queue: Queue, url: str) -> None:
    async def process(job: Any) -> str:
        return f"{job.id} on {threading.current_thread().name}"

    job = await run_one(queue, url, lambda job: process(job))
    assert job.result_as(str) == f"{job.id} on MainThread"


# ── what it can do ───────────────────────────────────────────────────────────────────────────────────


async def test_it_sees_the_job_and_tells_in_order(queue: Queue, url: str) -> None:
    def process(job: SyncJob) -> dict[str, Any]:
        assert threading.current_thread() is not threading.main_thread()
        assert (job.name, job.data, job.run, job.attempt, job.attempts_made) == ("paint", {"n": 1}, 1, 1, 0)
        assert job.data_as(dict[str, int]) == {"n": 1}
        assert job.attempt_key == f"1-{job.lease}"
        assert (job.cancel, job.cancel_requested.is_set(), job.cancel_requested.wait(0.01)) == (None, False, False)
        job.update_progress(1)
        job.milestone("half", {"of": "it"})
        job.set_preview(b"webp", 7)
        job.log("a line")
        job.report_progress(99)
        return {"in": job.id}

    job = await run_one(queue, url, process, progress_interval_ms=10)
    assert job.result_as(dict) == {"in": job.id}
    told = [(event.type, event.fields.get("name")) for event in (await queue.get_history(job.id))[1:]]
    assert told == [
        ("active", None),
        ("progress", None),
        ("milestone", "half"),
        ("milestone", "preview_ready"),
        ("progress", None),
        ("completed", None),
    ]


async def test_it_has_whatever_else_a_job_knows_and_can_do(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(job: ActiveJob, more: int, *, last: str) -> str:
        return f"{job.id} {more} {last} on {threading.current_thread().name}"

    monkeypatch.setattr(ActiveJob, "secret", property(lambda job: f"secret of {job.id}"), raising=False)
    monkeypatch.setattr(ActiveJob, "ask", ask, raising=False)

    def process(job: SyncJob) -> list[str]:
        return [job.secret, job.ask(1, last="x")]

    job = await run_one(queue, url, process)
    assert job.result_as(list) == [f"secret of {job.id}", f"{job.id} 1 x on MainThread"]


async def test_what_cannot_be_told_is_an_error_in_the_function_itself(queue: Queue, url: str) -> None:
    def process(job: SyncJob) -> str:
        for tell in (job.update_progress, job.report_progress):
            with pytest.raises(InvalidOption):
                tell(float("nan"))
        with pytest.raises(InvalidOption):
            job.milestone("")
        with pytest.raises(AttributeError):
            job.close()
        with pytest.raises(AttributeError):
            job.data_of  # noqa: B018
        return "well"

    job = await run_one(queue, url, process)
    assert job.result_as(str) == "well"


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (UnrecoverableError("never", x=1), "poison"),
        (RetryLater("later", 5), "transient"),
        (ValueError("oh"), "transient"),
        (StopIteration(1), "transient"),
        (SystemExit(3), "transient"),
        (KeyboardInterrupt(), "transient"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
async def test_what_it_raises_ends_the_attempt_and_not_the_worker(
    queue: Queue, url: str, problem: BaseException, kind: str
) -> None:
    def process(job: SyncJob) -> None:
        raise problem

    job = await run_one(queue, url, process)
    assert job.error is not None
    assert (job.state, job.error.kind) == ("failed", kind)


async def test_it_has_the_context_of_its_attempt(queue: Queue, url: str) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    variable.set("from the worker's task")

    def process(job: SyncJob) -> str:
        return variable.get()

    job = await run_one(queue, url, process)
    assert job.result_as(str) == "from the worker's task"


async def test_threads_are_as_many_as_slots_and_used_again(queue: Queue, url: str) -> None:
    threads: set[int] = set()
    at_once: list[int] = []
    running = 0
    lock = threading.Lock()
    all_slots = threading.Barrier(4)

    def process(job: SyncJob) -> None:
        nonlocal running
        with lock:
            running += 1
            at_once.append(running)
            threads.add(threading.get_ident())
        all_slots.wait(WAIT_S)
        with lock:
            running -= 1

    ids = [(await queue.add("paint")).id for _ in range(40)]
    async with Worker(queue.name, process, url, concurrency=4):
        jobs = await ended(queue, *ids)
    assert {job.state for job in jobs} == {"completed"}
    assert max(at_once) == 4
    assert len(threads) <= 5
    await wait_until(lambda: not any(thread.name == "kargah processor" for thread in threading.enumerate()))


async def test_a_thread_that_sleeps_holds_up_no_other_job(queue: Queue, url: str) -> None:
    def process(job: SyncJob) -> None:
        time.sleep(1.5)

    job = await run_one(queue, url, process, lease_ms=500, interval_ms=100)
    assert (job.state, job.stalled, job.attempts_started) == ("completed", 0, 1)


# ── stopping ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_canceled_function_that_listens_stops_with_proof(queue: Queue, url: str) -> None:
    def process(job: SyncJob) -> None:
        assert job.cancel_requested.wait(WAIT_S)
        assert job.cancel is not None
        raise JobCanceled("stopped", by=job.cancel.by)

    job = await queue.add("paint")
    async with Worker(queue.name, process, url):
        await until_active(queue)
        await queue.cancel(job.id, by="me")
        await ended(queue, job.id)
    assert (await queue.get_history(job.id))[-1].fields["details"] == {"by": "me"}


@pytest.mark.parametrize("why", ["timeout", "cancel", "lost"])
async def test_one_that_does_not_listen_but_tells_is_stopped_by_what_it_tells(queue: Queue, url: str, why: str) -> None:
    stopped_by: list[type] = []

    def process(job: SyncJob) -> None:
        try:
            while True:
                job.update_progress(1)
                time.sleep(0.02)
        except Exception as problem:
            stopped_by.append(type(problem))
            raise

    job = await queue.add("paint", None, JobOptions(timeout_ms=100 if why == "timeout" else 0))
    async with Worker(queue.name, process, url, cancel_grace_ms=200):
        if why != "timeout":
            await until_active(queue)
        if why == "cancel":
            await queue.cancel(job.id)
        if why == "lost":
            await steal(queue, job.id)
            await wait_until(lambda: bool(stopped_by))
            await queue.cancel(job.id)
        (job,) = await ended(queue, job.id)
    assert stopped_by[0] is LeaseLost
    assert job.state == ("failed" if why == "timeout" else "canceled")
    if why == "timeout":
        assert job.error is not None
        assert (job.reason, job.error.kind, job.error.details) == ("timeout", "timeout", {})
    if why == "cancel":
        assert (await queue.get_history(job.id))[-1].fields["details"] == {}
    check_history(await queue.get_history(job.id))


@pytest.mark.parametrize("why", ["timeout", "cancel"])
async def test_one_that_cannot_be_stopped_is_recorded_in_time_and_keeps_its_slot_until_it_ends(
    queue: Queue, url: str, why: str
) -> None:
    may_end = threading.Event()
    refused: list[type] = []

    def process(job: SyncJob) -> str:
        if job.id == "stuck" and job.attempt == 1:
            may_end.wait(WAIT_S)
            try:
                job.update_progress(99)
            except LeaseLost as problem:
                refused.append(type(problem))
        return job.id

    options = JobOptions(id="stuck", attempts=1, timeout_ms=100 if why == "timeout" else 0)
    stuck = await queue.add("paint", None, options)
    worker = Worker(queue.name, process, url, concurrency=2, cancel_grace_ms=100)
    async with worker:
        try:
            if why == "cancel":
                await until_active(queue)
                await queue.cancel("stuck")
            (stuck,) = await ended(queue, "stuck")
            threads = sum(thread.name == "kargah processor" for thread in threading.enumerate())
            assert threads == 1, "it still runs"
            before = await queue.get_history("stuck")
            later = [(await queue.add("paint")).id for _ in range(20)]
            await ended(queue, *later)
            assert sum(thread.name == "kargah processor" for thread in threading.enumerate()) == 2
            assert not worker._claimer.sent_at.keys() - {f"{worker._claimer.id}:0", f"{worker._claimer.id}:1"}
        finally:
            may_end.set()
        await wait_until(lambda: bool(refused))
        await ended(queue, (await queue.add("paint")).id)
    if why == "timeout":
        assert stuck.error is not None
        assert (stuck.state, stuck.reason, stuck.error.details) == ("failed", "timeout", {"stopped": False})
    else:
        assert stuck.state == "canceled"
        assert before[-1].fields["details"] == {"stopped": False}
    assert await queue.get_history("stuck") == before, "what it said afterwards is refused"
    await check_queue(queue)


async def test_lost_threads_are_no_free_capacity(queue: Queue, url: str) -> None:
    """With one slot and a thread that does not end, nothing more is claimed; another worker has to do it."""
    may_end = threading.Event()

    def process(job: SyncJob) -> None:
        if job.id == "stuck":
            may_end.wait(WAIT_S)

    await queue.add("paint", None, JobOptions(id="stuck", timeout_ms=50))
    worker = Worker(queue.name, process, url, cancel_grace_ms=50)
    async with worker:
        try:
            await ended(queue, "stuck")
            after = await queue.add("paint")
            await asyncio.sleep(0.3)
            assert await types(queue, after.id) == ["added"]
            async with Worker(queue.name, process, url):
                await ended(queue, after.id)
            again = await queue.add("paint")
            began = asyncio.get_running_loop().time()
            may_end.set()
            await ended(queue, again.id)
            assert asyncio.get_running_loop().time() - began < 1.5
        finally:
            may_end.set()


async def test_a_worker_stops_although_a_thread_does_not(queue: Queue, url: str) -> None:
    may_end = threading.Event()

    def process(job: SyncJob) -> None:
        may_end.wait(WAIT_S)

    stuck = await queue.add("paint")
    timed_out = await queue.add("paint", None, JobOptions(timeout_ms=20))
    worker = Worker(queue.name, process, url, concurrency=2, cancel_grace_ms=50)
    try:
        async with worker:
            await ended(queue, timed_out.id)
            await until_active(queue)
            async with asyncio.timeout(5):
                await worker.stop(grace_s=0.01)
        assert await types(queue, stuck.id) == ["added", "active", "waiting"], "handed back"
    finally:
        may_end.set()
    await wait_until(lambda: not any(thread.name == "kargah processor" for thread in threading.enumerate()))


def test_the_interpreter_exits_although_a_thread_does_not(url: str, queue_name: str) -> None:
    import subprocess

    code = f"""
import asyncio, time
from orchestrator import JobOptions, Queue, Worker

def process(job):
    time.sleep(600)

async def main():
    async with Queue({queue_name!r}, {url!r}) as queue:
        job = await queue.add("x", None, JobOptions(timeout_ms=50))
        async with Worker({queue_name!r}, process, {url!r}, cancel_grace_ms=50):
            while not (await queue.get_job(job.id)).state.is_finished:
                await asyncio.sleep(0.02)
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
