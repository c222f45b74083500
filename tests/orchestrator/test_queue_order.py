"""In which order jobs start, when, and how many at once."""

import random

import pytest

from orchestrator.errors import (
    InvalidOption,
    JobNotFound,
    WrongState,
)
from orchestrator.job import JobState
from orchestrator.scripts import Finish
from tests.invariants import check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene, drain, types

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


async def test_jobs_start_by_priority_then_in_the_order_of_adding_with_none_first(scene: Scene) -> None:
    draw = random.Random(7)
    jobs = [(draw.choice([0, 1, 2, 3, 2**21 - 1]), f"j{n}") for n in range(300)]
    for priority, job_id in jobs:
        await scene.add(job_id, priority=priority)
    expected = [job_id for _, job_id in sorted(jobs, key=lambda job: job[0])]
    listed = [
        job.id for start in range(0, 300, 100) for job in await scene.queue.get_jobs([JobState.WAITING], start, 100)
    ]
    assert listed == expected
    assert await drain(scene) == expected


async def test_lifo_jobs_start_before_the_others_of_their_priority_newest_first(scene: Scene) -> None:
    for job_id, options in {
        "f1": {},
        "l1": {"lifo": True},
        "f2": {},
        "l2": {"lifo": True},
        "p1": {"priority": 1, "lifo": True},
        "p2": {"priority": 1},
        "p3": {"priority": 1, "lifo": True},
    }.items():
        await scene.add(job_id, **options)  # type: ignore[arg-type]
    assert await drain(scene) == ["l2", "l1", "f1", "f2", "p3", "p1", "p2"]


async def test_fifo_is_exact_across_digits_of_the_sequence(scene: Scene) -> None:
    await scene.change_meta(sequence=0xFFFFFFFE)
    for number in range(6):
        await scene.add(f"j{number}")
    await scene.change_meta(sequence=2**52 - 100)
    for number in range(6, 9):
        await scene.add(f"j{number}")
    assert await drain(scene) == [f"j{number}" for number in range(9)]


async def test_a_delayed_job_becomes_waiting_when_due_in_the_order_of_its_due_time(scene: Scene) -> None:
    await scene.add("late", delay_ms=60_000)
    await scene.add("soon", delay_ms=20_000)
    await scene.add("now")
    job = await scene.queue.get_job("soon")
    assert job is not None
    assert (job.state, job.due_at) == ("delayed", job.created_at + 20_000)
    assert [each.id for each in await scene.queue.get_jobs([JobState.DELAYED])] == ["soon", "late"]
    assert await drain(scene) == ["now"]
    await scene.make_due()
    assert await drain(scene) == ["soon", "late"]
    assert types(await scene.queue.get_history("soon")) == ["added", "waiting", "active", "completed"]
    await check_queue(scene.queue)


async def test_a_claim_says_how_long_until_the_next_delayed_job(scene: Scene) -> None:
    await scene.add("late", delay_ms=60_000)
    assert 50_000 < (await scene.claim()).sleep_ms <= 60_000


async def test_a_job_that_is_due_before_all_others_wakes_a_worker_that_sleeps_too_long(scene: Scene) -> None:
    await scene.add("late", delay_ms=60_000)
    await scene.client.delete(scene.queue.keys.marker)
    await scene.add("later", delay_ms=70_000)
    assert not await scene.client.exists(scene.queue.keys.marker)
    await scene.add("sooner", delay_ms=10_000)
    assert await scene.client.exists(scene.queue.keys.marker)


async def test_promotion_ends_a_delay_and_keeps_the_priority(scene: Scene) -> None:
    await scene.add("a", priority=5)
    await scene.add("d", delay_ms=60_000, priority=3)
    job = await scene.queue.promote("d")
    assert (job.state, job.priority, job.due_at) == ("waiting", 3, None)
    assert await drain(scene) == ["d", "a"]
    with pytest.raises(WrongState):
        await scene.queue.promote("d")
    with pytest.raises(JobNotFound):
        await scene.queue.promote("none")


async def test_a_new_priority_counts_at_once_behind_its_equals(scene: Scene) -> None:
    for job_id, priority in (("a", 5), ("b", 2), ("c", 2)):
        await scene.add(job_id, priority=priority)
    job = await scene.queue.change_priority("a", 2)
    assert (job.priority, job.header.priority) == (2, 5)
    await scene.queue.change_priority("c", 0)
    assert await drain(scene) == ["c", "b", "a"]
    with pytest.raises(WrongState):
        await scene.queue.change_priority("a", 2)
    with pytest.raises(InvalidOption):
        await scene.queue.change_priority("a", -1)


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_paused_queue_starts_nothing_and_loses_nothing(scene: Scene) -> None:
    running = await scene.active("a")
    for number in range(20):
        await scene.add(f"j{number}")
    await scene.queue.pause()
    assert await scene.queue.is_paused()
    assert (await scene.claim(5)).claims == []
    assert await scene.finish(running) == "completed"
    await scene.add("new")
    assert not await scene.client.exists(scene.queue.keys.marker)
    assert (await scene.queue.get_counts())["waiting"] == 21
    await scene.queue.resume()
    assert await scene.client.exists(scene.queue.keys.marker)
    assert len(await drain(scene)) == 21
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert [event.type for event in events if event.type in ("paused", "resumed")] == ["paused", "resumed"]


async def test_no_more_jobs_run_than_the_global_concurrency(scene: Scene) -> None:
    await scene.queue.set_global_concurrency(2)
    for number in range(4):
        await scene.add(f"j{number}")
    claims = (await scene.claim(9)).claims
    assert len(claims) == 2
    assert (await scene.claim()).claims == []
    ending = Finish(claims[0].job.id, claims[0].lease, "completed", b"1")
    after = await scene.scripts.move_to_finished("t", "w:9", "w", LEASE_MS, INTERVAL_MS, 1, [ending])
    assert [claim.job.id for claim in after.claims] == ["j2"]
    await scene.queue.set_global_concurrency(0)
    assert len((await scene.claim(9)).claims) == 1


async def test_a_slot_that_gets_free_without_a_claim_wakes_a_worker(scene: Scene) -> None:
    await scene.queue.set_global_concurrency(1)
    claim = await scene.active("a")
    await scene.add("b")
    await scene.client.delete(scene.queue.keys.marker)
    await scene.finish(claim)
    assert await scene.client.exists(scene.queue.keys.marker)
    claim = (await scene.claim()).claims[0]
    await scene.add("c", max_stalled=0)
    await scene.finish(claim)
    await scene.claim()
    await scene.add("d")
    await scene.client.delete(scene.queue.keys.marker)
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    assert await scene.client.exists(scene.queue.keys.marker)


async def test_a_rate_limit_holds_in_every_window_however_many_slots_ask(scene: Scene) -> None:
    await scene.queue.set_global_rate_limit(3, 60_000)
    for number in range(8):
        await scene.add(f"j{number}")
    assert len((await scene.claim(2)).claims) == 2
    claims = await scene.claim(9)
    assert len(claims.claims) == 1
    assert 50_000 < claims.sleep_ms <= 60_000
    assert (await scene.claim(9)).claims == []
    seconds, micros = await scene.client.time()
    now_ms = seconds * 1000 + micros // 1000
    await scene.client.lset(f"{scene.prefix}rate", 2, now_ms - 50_000)  # the oldest start is still in the window
    assert (await scene.claim(9)).claims == []
    await scene.client.lset(f"{scene.prefix}rate", 2, now_ms - 60_001)  # and now it is not
    assert len((await scene.claim(9)).claims) == 1
    await scene.queue.set_global_rate_limit(0, 1)
    assert len((await scene.claim(9)).claims) == 4


async def test_an_empty_window_still_starts_no_more_than_the_limit_in_one_claim(scene: Scene) -> None:
    await scene.queue.set_global_rate_limit(1, 60_000)
    for number in range(8):
        await scene.add(f"j{number}")
    assert len((await scene.claim(4)).claims) == 1


async def test_a_manual_limit_stops_starts_for_its_time(scene: Scene) -> None:
    await scene.add("a")
    await scene.queue.rate_limit(60_000)
    claims = await scene.claim()
    assert claims.claims == []
    assert 50_000 < claims.sleep_ms <= 60_000
    await scene.queue.rate_limit(0)
    assert await drain(scene) == ["a"]


async def test_a_shorter_limit_does_not_end_a_longer_one(scene: Scene) -> None:
    long, short = await scene.active("a"), await scene.active("b")
    await scene.finish(long, "rate_limited", b"{}", 70_000)
    until = (await scene.meta()).get("limited_until")
    await scene.finish(short, "rate_limited", b"{}", 5)
    assert (await scene.meta()).get("limited_until") == until
