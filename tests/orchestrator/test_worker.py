"""What a worker makes of what its processor does and tells, on both kinds of server."""

import asyncio
import contextlib
import math
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.errors import (
    InvalidOption,
    LeaseLost,
    OutOfMemory,
    RetryLater,
    TransientError,
    UnrecoverableError,
)
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from tests.orchestrator.running import run_one, types

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


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
