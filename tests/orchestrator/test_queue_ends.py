"""How jobs end: canceled, removed, kept for a time, and started anew."""

import asyncio
import json

import pytest

from orchestrator.errors import (
    JobNotFound,
    WrongState,
)
from orchestrator.job import CancelRequest, JobState, KeepJobs
from orchestrator.scripts import Report
from tests.conftest import wait_until
from tests.dump import dump
from tests.invariants import check_history, check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene, drain, types

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

POISON = b'{"kind":"poison","message":"","details":{}}'


# ── cancel ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delay_ms", [0, 50_000])
async def test_a_job_that_has_not_started_is_canceled_at_once(scene: Scene, delay_ms: int) -> None:
    await scene.add("a", delay_ms=delay_ms)
    job = await scene.queue.cancel("a", by="me", reason="why")
    assert job.cancel is not None
    assert (job.state, job.cancel.by, job.cancel.reason, job.finished_at is None) == ("canceled", "me", "why", False)
    assert (await scene.claim()).claims == []
    history = await scene.queue.get_history("a")
    assert types(history) == ["added", "canceled"]
    assert history[-1].fields == {"cancel": {"by": "me", "reason": "why"}, "details": {}}
    await check_queue(scene.queue)


async def test_a_running_job_is_asked_and_ends_as_canceled_however_its_attempt_ends(scene: Scene) -> None:
    for outcome in ("canceled", "failed", "returned"):
        claim = await scene.active(outcome, attempts=9)
        assert (await scene.queue.cancel(outcome, "me")).state == "active"
        progress = await scene.scripts.update_progress(outcome, claim.lease, Report(1, "", b"1"))
        assert progress is not None
        assert progress.by == "me"
        assert await scene.finish(claim, outcome, POISON, 0) == "canceled"
        job = await scene.queue.get_job(outcome)
        assert job is not None
        assert (job.state, job.error, job.reason) == ("canceled", None, None)
    await check_queue(scene.queue)


async def test_a_canceled_job_is_renewed_only_as_long_as_it_may_take_to_stop(scene: Scene) -> None:
    claim = await scene.active("a")
    await scene.queue.cancel("a", "me")
    (answer,) = await scene.scripts.extend_locks(LEASE_MS, 60_000, [("a", claim.lease)])
    assert isinstance(answer, CancelRequest)
    assert answer.by == "me"
    assert await scene.scripts.extend_locks(LEASE_MS, -1, [("a", claim.lease)]) == [False]


async def test_only_a_completion_comes_before_a_cancel(scene: Scene) -> None:
    claim = await scene.active("a")
    await scene.queue.cancel("a")
    assert await scene.finish(claim) == "completed"
    assert types(await scene.queue.get_history("a")) == ["added", "active", "canceling", "completed"]
    with pytest.raises(WrongState):
        await scene.queue.cancel("a")


async def test_a_canceled_job_whose_worker_is_lost_ends_as_canceled(scene: Scene) -> None:
    await scene.active("a")
    await scene.queue.cancel("a")
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    assert types(await scene.queue.get_history("a")) == ["added", "active", "canceling", "stalled", "canceled"]


async def test_a_cancel_and_an_end_at_the_same_time_have_one_outcome(scene: Scene) -> None:
    for number in range(60):
        claim = await scene.active(f"a{number}")
        _, ended = await asyncio.gather(scene.queue.cancel(f"a{number}"), scene.finish(claim), return_exceptions=True)
        assert ended == "completed"
        check_history(await scene.queue.get_history(f"a{number}"))
    await check_queue(scene.queue)


async def test_texts_of_a_cancel_are_clipped_so_that_no_event_exceeds_4_kib(scene: Scene) -> None:
    claim = await scene.active("a")
    await scene.queue.cancel("a", by="\x01" * 5000, reason="🎨\ud800" * 5000)
    await scene.finish(claim, "canceled", json.dumps({"x": "y" * 900}).encode())
    check_history(await scene.queue.get_history("a"))


# ── removal, retention ───────────────────────────────────────────────────────────────────────────────


async def test_a_removed_job_leaves_only_a_tombstone(scene: Scene) -> None:
    claim = await scene.active("a", expires_ms=10_000)
    await scene.scripts.update_progress("a", claim.lease, Report(1, "preview_ready", b"1", b"picture"))
    await scene.scripts.add_log("a", claim.lease, 2, "line")
    with pytest.raises(WrongState):
        await scene.queue.remove("a")
    await scene.finish(claim)
    assert await scene.queue.remove("a")
    assert not await scene.queue.remove("a")
    left = await dump(scene.client, scene.prefix)
    assert set(left) - {"marker", "totals:before"} == {"meta", "events", "gone:a"}
    assert 0 < await scene.client.pttl(f"{scene.prefix}gone:a") <= 60_000
    assert await scene.queue.get_job("a") is None
    with pytest.raises(JobNotFound):
        await scene.queue.get_history("a")


@pytest.mark.parametrize("outcome", ["completed", "failed", "canceled"])
async def test_a_finished_jobs_time_ends_exactly_also_in_an_idle_queue(scene: Scene, outcome: str) -> None:
    kept = {"remove_on_complete": KeepJobs(age_s=1), "remove_on_fail": KeepJobs(age_s=1)}
    claim = await scene.active("a", has_files=True, **kept)
    await scene.scripts.update_progress("a", claim.lease, Report(1, "preview_ready", b"1", b"picture"))
    await scene.scripts.add_log("a", claim.lease, 2, "line")
    await scene.finish(claim, outcome, POISON)
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.finished_at is not None
    assert job.expires_at == job.finished_at + 1000
    assert (await scene.queue.get_counts())[outcome] == 1

    async def is_over() -> bool:
        seconds, micros = await scene.client.time()
        return bool(seconds * 1000 + micros // 1000 > (job.expires_at or 0))

    await wait_until(is_over)
    assert (await scene.queue.get_counts())[outcome] == 0
    assert await scene.queue.get_job("a") is None
    assert await scene.queue.get_preview("a") is None
    assert await scene.queue.get_jobs(list(JobState)) == []
    assert (await scene.queue.get_recent())[0] == []
    with pytest.raises(JobNotFound):
        await scene.queue.retry("a")
    await check_queue(scene.queue)
    for kind in ("job", "state", "log", "lines", "preview"):
        assert not await scene.client.exists(f"{scene.prefix}{kind}:a")
    assert await scene.scripts.remove_expired(10) == 1
    left = await dump(scene.client, scene.prefix)
    assert set(left) - {"marker", "sweep", "totals:before"} == {"meta", "events", "gone:a"}
    assert left.get("sweep") == ([(f"a/1-{claim.lease}", job.expires_at)] if outcome == "completed" else None)
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert (events[-1].type, events[-1].job, events[-1].fields) == ("removed", "a", {"prev": outcome})


async def test_a_count_keeps_the_newest(scene: Scene) -> None:
    for number in range(5):
        await scene.completed(f"c{number}", remove_on_complete=3)
        await scene.failed(f"f{number}", remove_on_fail=KeepJobs(count=2, age_s=1000))
    assert [job.id for job in await scene.queue.get_jobs([JobState.COMPLETED])] == ["c4", "c3", "c2"]
    assert [job.id for job in await scene.queue.get_jobs([JobState.FAILED])] == ["f4", "f3"]
    await check_queue(scene.queue)


async def test_a_job_may_be_removed_with_its_end(scene: Scene) -> None:
    claim = await scene.active("a", remove_on_complete=True)
    await scene.finish(claim, content=b'"%s"' % (b"x" * 5000))
    await scene.add("b", remove_on_fail=True)
    assert (await scene.queue.cancel("b")).state == "canceled"
    assert await scene.queue.get_job("b") is None
    left = await dump(scene.client, scene.prefix)
    assert set(left) - {"marker", "totals:before"} == {"meta", "events", "gone:a", "gone:b", "result:a"}
    assert 0 < await scene.client.pttl(f"{scene.prefix}result:a") <= 60_000


# ── retry ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["completed", "failed", "canceled"])
async def test_a_retry_is_a_new_run_with_fresh_attempts(scene: Scene, state: str) -> None:
    await getattr(scene, state)("a", priority=3, remove_on_complete=KeepJobs(age_s=1000), remove_on_fail=1)
    job = await scene.queue.retry("a")
    assert (job.state, job.run, job.attempts_started, job.attempts_made, job.priority) == ("waiting", 2, 0, 0, 3)
    assert (job.result, job.error, job.cancel, job.finished_at, job.expires_at, job.progress) == (None,) * 6
    assert await scene.client.pttl(f"{scene.prefix}job:a") == -1
    await check_queue(scene.queue)
    assert await drain(scene) == ["a"]
    history = await scene.queue.get_history("a")
    check_history(history)
    assert [event.run for event in history][-3:] == [2, 2, 2]
    assert types(history)[-3:] == ["retried", "active", "completed"]


@pytest.mark.parametrize("state", ["add", "active"])
async def test_only_a_finished_job_can_be_retried(scene: Scene, state: str) -> None:
    await getattr(scene, state)("a")
    with pytest.raises(WrongState):
        await scene.queue.retry("a")
    with pytest.raises(JobNotFound):
        await scene.queue.retry("none")
