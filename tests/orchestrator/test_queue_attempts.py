"""What becomes of attempts that fail, and of those whose worker is lost."""

import pytest

from orchestrator.scripts import Report
from tests.dump import dump
from tests.invariants import check_history, check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene, drain, types

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

POISON = b'{"kind":"poison","message":"","details":{}}'


# ── attempts ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_failed_attempt_goes_to_the_back_while_attempts_are_left(scene: Scene) -> None:
    claim = await scene.active("a", attempts=2)
    await scene.add("b")
    assert await scene.finish(claim, "failed", POISON, 0) == "waiting"
    order = []
    for _ in range(2):
        (claim,) = (await scene.claim()).claims
        order.append((claim.job.id, claim.job.attempts_started, claim.job.attempts_made))
        await scene.finish(claim, "failed", POISON, 0)
    assert order == [("b", 1, 0), ("a", 2, 1)]
    job = await scene.queue.get_job("a")
    assert job is not None
    assert (job.state, job.reason, job.attempts_made) == ("failed", "error", 2)
    assert types(await scene.queue.get_history("a")) == ["added", "active", "waiting", "active", "failed"]


async def test_a_pause_before_the_next_attempt_is_a_delay(scene: Scene) -> None:
    claim = await scene.active("a", attempts=2)
    assert await scene.finish(claim, "failed", POISON, 40_000) == "delayed"
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.due_at is not None
    history = await scene.queue.get_history("a")
    assert history[-1].fields["due_at"] == job.due_at == history[-1].at + 40_000
    assert history[-1].fields["error"]["kind"] == "poison"
    await scene.make_due()
    assert await drain(scene) == ["a"]


async def test_a_job_that_did_not_start_in_time_fails_as_expired(scene: Scene) -> None:
    await scene.add("waiting", expires_ms=1000)
    await scene.add("delayed", expires_ms=1000, delay_ms=5000)
    started = await scene.active("started", expires_ms=1000, priority=0, lifo=True)
    await scene.pass_deadlines()
    assert await scene.scripts.move_due_jobs(10) == 2
    for job_id in ("waiting", "delayed"):
        job = await scene.queue.get_job(job_id)
        assert job is not None
        assert job.error is not None
        assert (job.state, job.reason, job.error.kind) == ("failed", "expired", "expired")
    await scene.finish(started, "failed", POISON, 0)
    await check_queue(scene.queue)


# ── lost workers ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_job_whose_lease_ran_out_goes_back_to_its_old_place(scene: Scene) -> None:
    await scene.active("a")
    await scene.add("b")
    await scene.end_leases()
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 1
    (claim,) = (await scene.claim()).claims
    assert (claim.job.id, claim.job.stalled, claim.job.attempts_started, claim.job.attempts_made) == ("a", 1, 2, 0)
    assert types(await scene.queue.get_history("a")) == ["added", "active", "stalled", "waiting", "active"]


async def test_a_job_that_loses_its_worker_too_often_fails_with_the_reason(scene: Scene) -> None:
    await scene.add("a", max_stalled=2)
    starts = 0
    while claims := (await scene.claim()).claims:
        starts += len(claims)
        await scene.end_leases()
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.error is not None
    assert (starts, job.state, job.reason, job.error.kind, job.stalled) == (3, "failed", "stalled", "stalled", 3)
    check_history(await scene.queue.get_history("a"))


async def test_the_end_of_a_lost_attempt_is_refused_and_changes_nothing(scene: Scene) -> None:
    late = await scene.active("a")
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    (claim,) = (await scene.claim()).claims
    before = await dump(scene.client, scene.prefix)
    for outcome in ("completed", "failed", "canceled", "returned"):
        assert await scene.finish(late, outcome, POISON, 0) == "LEASE_LOST"
    for call in (
        scene.scripts.update_progress("a", late.lease, Report(9, "", b"1")),
        scene.scripts.add_log("a", late.lease, 9, "x"),
    ):
        with pytest.raises(Exception, match="not held by this token"):
            await call
    assert await scene.scripts.extend_locks(LEASE_MS, 1000, [("a", late.lease)]) == [False]
    assert await dump(scene.client, scene.prefix) == before
    assert await scene.finish(claim) == "completed"
    before = await dump(scene.client, scene.prefix)
    assert await scene.finish(late) == "LEASE_LOST"
    assert await dump(scene.client, scene.prefix) == before, "not even `drained` is told again"


async def test_a_renewal_by_the_holder_is_accepted_at_any_age(scene: Scene) -> None:
    claim = await scene.active("a")
    await scene.end_leases()
    assert await scene.scripts.extend_locks(LEASE_MS, 1000, [("a", claim.lease)]) == [True]
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 0


async def test_after_a_gap_in_the_looks_everyone_gets_a_lease_of_grace(scene: Scene) -> None:
    await scene.active("a")
    await scene.end_leases()
    long_ago = int((await scene.meta()).get("looked_at") or 0) - 100_000
    await scene.change_meta(looked_at=long_ago)
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 0
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 0
    assert (await scene.claim()).claims == []
    await scene.change_meta(grace_until=1)
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 1


async def test_a_grace_longer_than_the_lease_is_cut_to_it_and_still_holds(scene: Scene) -> None:
    """It is of a caller with longer leases, or the clock was set back."""
    await scene.active("a")
    await scene.end_leases()
    in_a_day = int((await scene.meta()).get("looked_at") or 0) + 86_400_000
    await scene.change_meta(grace_until=in_a_day)
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 0
    assert int((await scene.meta()).get("grace_until") or 0) < in_a_day - 80_000_000


async def test_a_worker_may_have_any_name(scene: Scene) -> None:
    await scene.add("a")
    name = "a\0b\n ساخت"
    (claim,) = (await scene.scripts.move_to_active(scene.token(), "w:0", name, LEASE_MS, INTERVAL_MS, 1)).claims
    job = await scene.queue.get_job("a")
    assert job is not None
    assert (job.worker, job.lease, job.attempts_started) == (name, claim.lease, 1)
    assert await scene.finish(claim) == "completed"
    assert [event.type for event in await scene.queue.get_history("a")] == ["added", "active", "completed"]
