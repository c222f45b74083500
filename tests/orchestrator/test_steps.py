"""Jobs that go on in steps: checkpoints, and going on later without using an attempt."""

import asyncio
import itertools
import math
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.errors import (
    DelayedError,
    InvalidOption,
    JobCanceled,
    LeaseLost,
    RateLimitError,
    RetryLater,
    WaitingError,
)
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.scripts import Finish
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.invariants import MAX_HISTORY, check_history, check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene
from tests.orchestrator.running import ended, run_one, steal, types, until_active

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────


async def test_the_next_attempt_begins_where_the_last_one_stored_how_far_it_was(queue: Queue, url: str) -> None:
    seen: list[Any] = []

    async def process(job: ActiveJob) -> int:
        seen.append(job.checkpoint_value)
        await job.checkpoint({"done": job.attempt})
        assert job.checkpoint_value == {"done": job.attempt}
        if job.attempt < 3:
            raise ValueError("oh")
        return job.attempt

    job = await run_one(queue, url, process, JobOptions(attempts=3))
    assert seen == [None, {"done": 1}, {"done": 2}]
    assert job.checkpoint == {"done": 3}
    told = [event.fields["checkpoint"] for event in await queue.get_history(job.id) if event.type == "checkpoint"]
    assert told == [{"done": 1}, {"done": 2}, {"done": 3}]


async def test_a_checkpoint_survives_the_loss_of_the_worker_and_a_late_one_is_refused(queue: Queue, url: str) -> None:
    seen: list[Any] = []
    refused: list[str] = []

    async def process(job: ActiveJob) -> None:
        seen.append(job.checkpoint_value)
        if job.attempt == 1:
            await job.checkpoint("first")
            await steal(queue, job.id)
            try:
                await job.checkpoint("too late")
            except LeaseLost:
                refused.append(job.lease)
                raise

    job = await queue.add("paint")
    async with Worker(queue.name, process, url):
        (job,) = await ended(queue, job.id)
    assert seen == [None, "first"]
    assert len(refused) == 1
    assert (job.state, job.checkpoint) == ("completed", "first")


async def test_a_retry_by_hand_goes_on_after_a_failure_and_begins_anew_after_a_completion(scene: Scene) -> None:
    async def run(outcome: str, content: bytes) -> Any:
        claim = (await scene.claim()).claims[0]
        await scene.scripts.save_checkpoint("a", claim.lease, 1, b"7")
        await scene.finish(claim, outcome, content)
        return (await scene.queue.retry("a")).checkpoint

    await scene.add("a")
    assert await run("failed", b'{"kind":"poison","message":"","details":{}}') == 7
    assert await run("canceled", b"{}") == 7
    assert await run("completed", b"1") is None


@pytest.mark.parametrize("value", ["x" * 2048, {1: object()}, float("nan")], ids=["long", "object", "nan"])
async def test_what_cannot_be_a_checkpoint_is_refused_before_anything_is_sent(
    queue: Queue, url: str, value: Any
) -> None:
    async def process(job: ActiveJob) -> None:
        await job.checkpoint("good")
        with pytest.raises(InvalidOption, match="checkpoint"):
            await job.checkpoint(value)

    job = await run_one(queue, url, process)
    assert (job.state, job.checkpoint) == ("completed", "good")


# ── going on later ───────────────────────────────────────────────────────────────────────────────────


async def test_a_job_of_steps_uses_no_attempt_and_keeps_its_priority(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> str:
        step = (job.checkpoint_value or 0) + 1
        await job.checkpoint(step)
        if step == 1:
            raise DelayedError(20)
        if step == 2:
            raise WaitingError
        if step == 3:
            raise RateLimitError(30)
        return f"after {step} steps"

    job = await run_one(queue, url, process, JobOptions(priority=5))
    assert (job.state, job.result_as(str), job.priority) == ("completed", "after 4 steps", 5)
    assert (job.attempts_made, job.attempts_started, job.stalled) == (1, 4, 0)
    history = await queue.get_history(job.id)
    assert [event.type for event in history] == [
        "added", "active", "checkpoint", "delayed", "waiting", "active", "checkpoint", "waiting", "active",
        "checkpoint", "waiting", "active", "checkpoint", "completed",
    ]  # fmt: skip
    delayed = history[3]
    assert 20 <= delayed.fields["due_at"] - delayed.at < 1000
    assert history[10].at - history[9].at >= 0
    assert history[11].at - history[10].at >= 30, "nothing starts while the queue is limited"


async def test_going_on_later_and_claiming_the_next_job_are_one_call(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = asyncio.Event()

    async def process(job: ActiveJob) -> None:
        await may_end.wait()
        if job.name == "steps" and job.attempt == 1:
            raise DelayedError(1)

    first = await queue.add("steps")
    worker = Worker(queue.name, process, url)
    finished: list[tuple[list[str], list[str]]] = []
    finish = worker.queue.scripts.move_to_finished

    async def counting(*args: Any) -> Any:
        claims = await finish(*args)
        finished.append((claims.outcomes, [claim.job.name for claim in claims.claims]))
        return claims

    monkeypatch.setattr(worker.queue.scripts, "move_to_finished", counting)
    async with worker:
        await until_active(queue)
        second = await queue.add("plain")
        may_end.set()
        await ended(queue, first.id, second.id)
    assert finished[0] == (["delayed"], ["plain"])


async def test_jobs_that_a_limit_sends_back_start_in_the_order_in_which_they_were_added(queue: Queue, url: str) -> None:
    """G12 of shared/cases.md."""
    order: list[str] = []

    async def process(job: ActiveJob) -> None:
        if job.attempt == 1:
            raise RateLimitError(3)
        order.append(job.id)

    ids = [(await queue.add("paint")).id for _ in range(20)]
    await queue.set_global_rate_limit(1, 5)
    async with Worker(queue.name, process, url):
        jobs = await ended(queue, *ids)
    assert order == ids
    assert {(job.state, job.attempts_made) for job in jobs} == {(JobState.COMPLETED, 1)}
    await check_queue(queue)


async def test_a_limit_that_a_job_met_holds_for_the_whole_queue_and_a_longer_one_stays(scene: Scene) -> None:
    claim = await scene.active("a")
    await scene.add("b")
    assert await scene.finish(claim, "rate_limited", b"{}", 70_000) == "waiting"
    assert [job.id for job in await scene.queue.get_jobs([JobState.WAITING])] == ["a", "b"]
    assert (await scene.claim()).claims == []
    left_ms = await scene.queue.get_rate_limit_ttl()
    assert 60_000 < left_ms <= 70_000
    await scene.queue.remove_rate_limit()
    assert await scene.queue.get_rate_limit_ttl() == 0
    (again,) = (await scene.claim()).claims
    assert again.job.id == "a"
    await scene.queue.rate_limit(900_000)
    await scene.finish(again, "rate_limited", b"{}", 5)
    assert await scene.queue.get_rate_limit_ttl() > 800_000


async def test_a_limit_of_zero_only_gives_the_job_back(scene: Scene) -> None:
    claim = await scene.active("a")
    await scene.add("b")
    ending = Finish("a", claim.lease, "rate_limited", b"{}", 0)
    claims = await scene.scripts.move_to_finished("1-t", "w:3", "worker", LEASE_MS, INTERVAL_MS, 1, [ending])
    assert [claim.job.id for claim in claims.claims] == ["a"]


@pytest.mark.parametrize(
    "problem", [DelayedError(5), WaitingError(), RateLimitError(70_000), ValueError("oh")], ids=repr
)
async def test_a_canceled_job_ends_as_canceled_whatever_it_raises(queue: Queue, url: str, problem: Exception) -> None:
    async def process(job: ActiveJob) -> None:
        await job.cancel_requested.wait()
        raise problem

    job = await queue.add("paint", None, JobOptions(attempts=5))
    async with Worker(queue.name, process, url):
        await until_active(queue)
        await queue.cancel(job.id, "me", "enough")
        (job,) = await ended(queue, job.id)
    assert job.state is JobState.CANCELED
    if isinstance(problem, RateLimitError):
        assert await queue.get_rate_limit_ttl() > 0, "which is so for the others, too"
    check_history(await queue.get_history(job.id))


async def test_a_job_canceled_while_it_completes_is_completed(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> str:
        await job.cancel_requested.wait()
        return "done all the same"

    job = await queue.add("paint")
    async with Worker(queue.name, process, url):
        await until_active(queue)
        await queue.cancel(job.id)
        (job,) = await ended(queue, job.id)
    assert job.state is JobState.COMPLETED


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "5", None, True], ids=str)
def test_a_pause_that_can_never_be_right_is_refused_where_it_is_said(value: Any, server: Any) -> None:
    with pytest.raises(InvalidOption, match="delay_ms"):
        DelayedError(value)
    with pytest.raises(InvalidOption, match="duration_ms"):
        RateLimitError(value)


async def test_a_cancellation_told_by_the_processor_still_has_its_details(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        await job.cancel_requested.wait()
        raise JobCanceled("stopped", step=3)

    job = await queue.add("paint")
    async with Worker(queue.name, process, url):
        await until_active(queue)
        await queue.cancel(job.id)
        await ended(queue, job.id)
    assert (await queue.get_history(job.id))[-1].fields["details"] == {"step": 3}


async def test_the_history_of_a_job_of_endless_steps_is_bounded_and_says_what_is_gone(scene: Scene) -> None:
    await scene.add("a")
    for _ in range(2150):
        claim = (await scene.claim()).claims[0]
        assert await scene.finish(claim, "waiting", b"{}") == "waiting"
    history = await scene.queue.get_history("a")
    assert MAX_HISTORY <= len(history) < MAX_HISTORY + 200
    assert (history[0].type, history[0].seq) == ("added", 1)
    assert history[-1].seq == 1 + 2 * 2150
    gone = history[1].seq - 2
    assert gone == 1 + 2 * 2150 - len(history)
    check_history(history)
    await check_queue(scene.queue)


# ── pauses between attempts ──────────────────────────────────────────────────────────────────────────


async def test_a_strategy_of_the_worker_says_the_pause(queue: Queue, url: str) -> None:
    asked: list[tuple[int, str, int]] = []

    def mine(attempts_made: int, error: BaseException, job: ActiveJob) -> float:
        asked.append((attempts_made, str(error), job.attempt))
        return 0 if attempts_made == 1 else 7

    async def slow(attempts_made: int, error: BaseException, job: ActiveJob) -> float:
        await asyncio.sleep(0)
        return mine(attempts_made, error, job)

    async def process(job: ActiveJob) -> None:
        raise ValueError("oh")

    for name in ("mine", "slow"):
        asked.clear()
        options = JobOptions(attempts=3, backoff=Backoff(name))
        job = await run_one(queue, url, process, options, backoff_strategies={"mine": mine, "slow": slow})
        assert (job.state, job.attempts_made) == ("failed", 3)
        assert asked == [(1, "oh", 1), (2, "oh", 2)], "nobody is asked where no attempt is left"
        assert (await types(queue, job.id)) == [
            "added", "active", "waiting", "active", "delayed", "waiting", "active", "failed",
        ]  # fmt: skip


async def test_a_strategy_may_give_up_and_its_limit_is_the_jobs(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        raise ValueError("oh")

    strategies = {"none": lambda made, error, job: -1, "long": lambda made, error, job: 10**9}
    job = await run_one(
        queue, url, process, JobOptions(attempts=9, backoff=Backoff("none")), backoff_strategies=strategies
    )
    assert (job.state, job.attempts_made) == ("failed", 1)
    job = await run_one(
        queue, url, process, JobOptions(attempts=2, backoff=Backoff("long", max_ms=3)), backoff_strategies=strategies
    )
    assert (job.state, job.attempts_made) == ("failed", 2)


def broken(made: int, error: BaseException, job: ActiveJob) -> float:
    raise KeyError("no table")


@pytest.mark.parametrize(
    ("strategies", "told"),
    [({}, "no strategy 'mine'"), ({"mine": broken}, "KeyError"), ({"mine": lambda *_: "soon"}, "TypeError")],
    ids=["unknown", "raises", "no number"],
)
async def test_a_pause_that_nobody_knows_fails_the_job_and_says_why(
    queue: Queue, url: str, strategies: Any, told: str
) -> None:
    async def process(job: ActiveJob) -> str:
        if job.name == "good":
            return "fine"
        raise ValueError("the first cause")

    bad = await queue.add("bad", None, JobOptions(attempts=5, backoff=Backoff("mine")))
    good = await queue.add("good")
    async with Worker(queue.name, process, url, backoff_strategies=strategies):
        bad, good = await ended(queue, bad.id, good.id)
    assert (bad.state, bad.attempts_made, good.state) == ("failed", 1, "completed")
    assert bad.error is not None
    assert "the first cause" in bad.error.message
    assert told in bad.error.message


@pytest.mark.parametrize(
    "strategies", [{"fixed": broken}, {"": broken}, {"mine": 5}], ids=["built-in name", "no name", "no function"]
)
async def test_strategies_that_can_never_be_right_are_refused(url: str, queue: Queue, strategies: Any) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    with pytest.raises(InvalidOption):
        Worker(queue.name, process, url, backoff_strategies=strategies)


# ── what a failure tells ─────────────────────────────────────────────────────────────────────────────


async def test_where_a_job_failed_is_kept_with_it_and_told_in_no_event(queue: Queue, url: str) -> None:
    def paint(depth: int) -> None:
        if depth == 0:
            raise ValueError("oh")
        paint(depth - 1)

    async def process(job: ActiveJob) -> None:
        paint(100)

    job = await run_one(queue, url, process, JobOptions(attempts=2))
    assert job.stack is not None
    lines = job.stack.splitlines()
    assert len(job.stack.encode()) <= 1024
    assert lines[-1].startswith("test_steps.py:")
    assert lines[-1].endswith(" paint")
    assert all("test_steps" not in str(event.fields) for event in await queue.get_history(job.id))
    job = await run_one(queue, url, process, keep_stack=False)
    assert job.stack is None


async def test_a_job_that_completes_after_a_failure_has_no_stack(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        if job.attempt == 1:
            raise ValueError("oh")

    job = await run_one(queue, url, process, JobOptions(attempts=2))
    assert (job.state, job.error, job.stack) == ("completed", None, None)


async def test_a_failure_says_whether_the_attempts_are_used_up(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        raise ValueError("oh")

    job = await run_one(queue, url, process, JobOptions(attempts=2))
    fields = (await queue.get_history(job.id))[-1].fields
    assert (fields["attempts_made"], fields["attempts"]) == (2, 2)


async def test_a_job_that_was_started_too_often_fails_without_running(queue: Queue, url: str) -> None:
    runs = itertools.count(1)
    ran: list[int] = []

    async def process(job: ActiveJob) -> None:
        ran.append(next(runs))
        raise WaitingError

    job = await run_one(queue, url, process, max_started_attempts=3)
    assert ran == [1, 2, 3]
    assert job.error is not None
    assert (job.state, job.attempts_started) == ("failed", 4)
    assert "max_started_attempts" in job.error.message


async def test_a_step_is_told_to_no_one_as_an_end(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        if job.attempt < 4:
            raise DelayedError(0)

    job = await queue.add("paint")
    async with Worker(queue.name, process, url):

        async def is_done() -> bool:
            found = await queue.get_job(job.id)
            return found is not None and found.state.is_finished

        await wait_until(is_done)
    told = await types(queue, job.id)
    assert told.count("completed") == 1
    assert told.count("delayed") == 3


class Careless(RetryLater):
    """An error of somebody who forgot our `__init__`, and has another idea of kinds."""

    kind = 5  # type: ignore[assignment]

    def __init__(self) -> None:
        self.details = ["no", "table"]  # type: ignore[assignment]


class CarelessStep(DelayedError):
    """A step without its delay."""

    def __init__(self) -> None:
        pass


async def test_errors_of_ones_own_that_forget_ours_hurt_no_worker(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        if job.attempt == 1:
            raise CarelessStep
        if job.attempt == 2:
            raise RetryLater("never", delay_ms=math.inf)  # type: ignore[arg-type]
        raise Careless

    job = await queue.add("paint", None, JobOptions(attempts=2))
    async with Worker(queue.name, process, url):
        await wait_until(lambda: is_in(queue, job.id, JobState.DELAYED))
        await queue.promote(job.id)
        (job,) = await ended(queue, job.id)
    assert job.error is not None
    assert (job.state, job.error.kind, job.error.details) == ("failed", "5", {})


async def is_in(queue: Queue, job_id: str, state: JobState) -> bool:
    job = await queue.get_job(job_id)
    return job is not None and job.state is state and job.attempts_made > 0
