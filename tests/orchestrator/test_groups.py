"""Fair shares between groups, and what holds a group."""

import random
from collections import Counter
from typing import Any

import pytest

from orchestrator.errors import InvalidOption
from orchestrator.group import GroupPlace, RateLimit
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from tests.invariants import check_queue
from tests.lua.scene import Scene, drain

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def fill(scene: Scene, groups: dict[str, int], **options: Any) -> None:
    """So many jobs of each group, one group after the other."""
    for group, count in groups.items():
        for number in range(count):
            await scene.add(f"{group}{number}", group=group, **options)


async def served(scene: Scene, count: int) -> str:
    """The groups of the next jobs, one letter each, every job completed at once."""
    order = ""
    for _ in range(count):
        (claim,) = (await scene.claim()).claims
        order += claim.job.header.group or "-"
        await scene.change_record(claim.job.id, started_at=10**13)  # it took no time at all
        await scene.finish(claim)
    return order


async def test_equal_groups_take_turns_however_much_each_has(scene: Scene) -> None:
    await fill(scene, {"a": 30, "b": 3, "c": 3})
    assert await served(scene, 9) == "abc" * 3
    assert await served(scene, 27) == "a" * 27
    await check_queue(scene.queue)


async def test_a_group_gets_its_share_by_weight_and_no_group_starves(scene: Scene) -> None:
    await scene.queue.set_group_weight("v", 8)
    await fill(scene, {"v": 90, "f": 30})
    first = Counter(await served(scene, 90))
    assert first["v"] == pytest.approx(80, abs=1)
    await check_queue(scene.queue)


async def test_a_dear_job_takes_as_many_turns_as_it_costs(scene: Scene) -> None:
    await fill(scene, {"d": 10}, cost=4)
    await fill(scene, {"c": 40}, cost=1)
    first = Counter(await served(scene, 25))
    assert first["d"] == pytest.approx(5, abs=1)


async def test_idling_earns_no_credit(scene: Scene) -> None:
    await fill(scene, {"a": 20})
    assert await served(scene, 10) == "a" * 10
    await fill(scene, {"b": 10})
    assert set(Counter(await served(scene, 10)).values()) == {5}


async def test_leaving_pays_no_debt(scene: Scene) -> None:
    await scene.add("dear", group="a", cost=5)
    await fill(scene, {"b": 10})
    assert await served(scene, 1) == "a"
    await fill(scene, {"a": 10})
    assert await served(scene, 6) == "bbbbba"


async def test_what_an_attempt_took_is_charged_within_bounds(scene: Scene) -> None:
    await fill(scene, {"s": 20, "q": 20})  # slow, quick
    await scene.change_meta(pace=100_000)
    order = ""
    for _ in range(10):
        (claim,) = (await scene.claim()).claims
        order += claim.job.header.group or ""
        began = 10**13 if claim.job.header.group == "q" else 1  # no time at all, or years: a quarter, or four times
        await scene.change_record(claim.job.id, started_at=began)
        await scene.change_meta(pace=100_000)
        await scene.finish(claim)
    assert Counter(order)["q"] >= 8
    await check_queue(scene.queue)


async def test_priorities_and_fifo_hold_inside_a_group_and_never_across(scene: Scene) -> None:
    for job_id, group, priority in (("a1", "a", 9), ("a2", "a", 2), ("b1", "b", 500), ("a3", "a", 2)):
        await scene.add(job_id, group=group, priority=priority)
    assert await drain(scene) == ["a2", "b1", "a3", "a1"]


async def test_jobs_without_a_group_come_first_unless_they_share(scene: Scene) -> None:
    await fill(scene, {"a": 2})
    await scene.add("plain1", priority=99)
    await scene.add("plain2", priority=99)
    assert await drain(scene) == ["plain1", "plain2", "a0", "a1"]
    await scene.queue.set_group_defaults(fair_ungrouped=True)
    await fill(scene, {"b": 2})
    await scene.add("plain3", priority=99)
    await scene.add("plain4", priority=99)
    assert sorted(await drain(scene)) == ["b0", "b1", "plain3", "plain4"]
    await check_queue(scene.queue)


async def test_sharing_alternates_between_jobs_without_a_group_and_groups(scene: Scene) -> None:
    await scene.queue.set_group_defaults(fair_ungrouped=True)
    for number in range(3):
        await scene.add(f"plain{number}")
    await fill(scene, {"a": 3})
    order = "".join("a" if job_id[0] == "a" else "-" for job_id in await drain(scene))
    assert order in ("-a" * 3, "a-" * 3)


async def test_with_ageing_a_low_priority_does_not_starve(scene: Scene) -> None:
    await scene.queue.set_group_defaults(ageing_ms=1000)
    await scene.add("low", group="a", priority=10)
    member = (await scene.client.zrange(f"{scene.prefix}group:a", 0, 0))[0]
    await scene.client.zincrby(f"{scene.prefix}group:a", -11_000, member)  # it has waited for 11 steps
    await scene.change_record("low", entered_at=(await scene.record("low"))["entered_at"] - 11_000)
    await scene.add("high", group="a", priority=1)
    assert await drain(scene) == ["low", "high"]


async def test_a_job_without_a_group_that_shares_keeps_its_age_when_it_comes_back(scene: Scene) -> None:
    await scene.queue.set_group_defaults(fair_ungrouped=True, ageing_ms=1000)
    await scene.add("a")
    entered_at = (await scene.record("a"))["entered_at"] - 5000
    await scene.change_record("a", entered_at=entered_at)
    (claim,) = (await scene.claim()).claims
    assert await scene.finish(claim, "returned") == "waiting"
    assert (await scene.record("a"))["entered_at"] == entered_at


async def test_an_aged_job_that_comes_back_keeps_its_place(scene: Scene) -> None:
    await scene.queue.set_group_defaults(ageing_ms=1000)
    for number in range(3):
        await scene.add(f"{number}", group="a", priority=1)
    (claim,) = (await scene.claim()).claims
    await scene.finish(claim, "returned", b"{}")
    assert await drain(scene) == ["0", "1", "2"]


async def test_ageing_is_taken_up_by_a_group_that_is_empty(scene: Scene) -> None:
    await fill(scene, {"a": 1})
    await scene.queue.set_group_defaults(ageing_ms=1000)
    await scene.add("later", group="a")
    assert (await scene.queue.get_group("a")).ageing == 0
    await drain(scene)
    await scene.add("again", group="a")
    assert (await scene.queue.get_group("a")).ageing == 1000


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_full_group_waits_for_a_finish_while_others_go_on(scene: Scene) -> None:
    await scene.queue.set_group_concurrency("a", 1)
    await fill(scene, {"a": 3, "b": 3})
    claims = (await scene.claim(6)).claims
    assert sorted(claim.job.id for claim in claims) == ["a0", "b0", "b1", "b2"]
    assert (await scene.queue.get_group("a")).place == GroupPlace.HELD
    await check_queue(scene.queue)
    await scene.finish(next(claim for claim in claims if claim.job.id == "a0"))
    assert await scene.client.zcard(scene.queue.keys.marker) == 1
    assert [claim.job.id for claim in (await scene.claim(6)).claims] == ["a1"]


@pytest.mark.parametrize("end", ["cancel", "stall", "fail", "retry", "return"])
async def test_every_end_of_an_attempt_frees_its_place_in_the_group(scene: Scene, end: str) -> None:
    await scene.queue.set_group_concurrency("a", 1)
    await scene.add("a0", group="a", attempts=2)
    (claim,) = (await scene.claim()).claims
    if end == "cancel":
        await scene.queue.cancel("a0")
        await scene.finish(claim, "canceled", b"{}")
    elif end == "stall":
        await scene.end_leases()
        await scene.scripts.move_stalled_to_wait(1000, 1000, 10)
    else:
        outcome = {"fail": "failed", "retry": "failed", "return": "returned"}[end]
        error = b'{"kind":"transient","message":"","details":{}}'
        await scene.finish(claim, outcome, error, 0 if end == "retry" else -1)
    assert (await scene.queue.get_group("a")).active == 0
    await check_queue(scene.queue)


async def test_a_group_starts_never_more_than_its_limit_in_any_window(scene: Scene) -> None:
    await scene.queue.set_group_rate_limit("a", RateLimit(3, 60_000))
    await fill(scene, {"a": 9, "b": 2})
    claims = await scene.claim(9)
    assert Counter(claim.job.header.group for claim in claims.claims) == {"a": 3, "b": 2}
    assert 59_000 < claims.sleep_ms <= 60_000
    starts = f"{scene.prefix}grate:a"
    await scene.client.lset(starts, -1, 1)  # the oldest start leaves the window
    await scene.client.zadd(f"{scene.prefix}groups:held", {"a": 1})
    assert len((await scene.claim(9)).claims) == 1
    await check_queue(scene.queue)


async def test_defaults_hold_of_groups_that_say_nothing_else(scene: Scene) -> None:
    await scene.queue.set_group_defaults(concurrency=1)
    await scene.queue.set_group_concurrency("b", 0)
    await fill(scene, {"a": 3, "b": 3})
    assert Counter(claim.job.header.group for claim in (await scene.claim(6)).claims) == {"a": 1, "b": 3}
    await scene.queue.set_group_defaults(concurrency=0)
    assert len((await scene.claim(6)).claims) == 2
    await check_queue(scene.queue)


async def test_a_paused_group_keeps_its_jobs_and_others_go_on(scene: Scene) -> None:
    await fill(scene, {"a": 2, "b": 2})
    await scene.queue.pause_group("a")
    assert await drain(scene) == ["b0", "b1"]
    assert (await scene.queue.get_group("a")).paused
    await scene.add("a2", group="a")
    await scene.queue.resume_group("a")
    assert await drain(scene) == ["a0", "a1", "a2"]
    await check_queue(scene.queue)


async def test_a_limited_group_is_told_of_in_time(scene: Scene) -> None:
    await fill(scene, {"a": 1})
    await scene.queue.rate_limit_group("a", 5000)
    claims = await scene.claim()
    assert not claims.claims
    assert 4000 < claims.sleep_ms <= 5000
    await scene.queue.rate_limit_group("a", 0)
    assert len((await scene.claim()).claims) == 1


async def test_a_stalled_job_returns_to_a_paused_group(scene: Scene) -> None:
    await scene.add("a0", group="a")
    await scene.claim()
    await scene.queue.pause_group("a")
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(1000, 1000, 10)
    assert not (await scene.claim()).claims
    await scene.queue.resume_group("a")
    assert await drain(scene) == ["a0"]


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────


async def test_groups_and_their_jobs_are_read_in_pages(scene: Scene) -> None:
    await fill(scene, {"a": 3, "b": 1})
    await scene.queue.pause_group("b")
    await scene.completed("plain")
    groups = await scene.queue.get_groups()
    assert [(group.id, group.waiting, group.place) for group in groups] == [("a", 3, "ring"), ("b", 1, "held")]
    assert await scene.queue.get_groups_count() == 2
    assert [group.id for group in await scene.queue.get_groups(1, 1)] == ["b"]
    assert [job.id for job in await scene.queue.get_group_jobs("a", 1, 2)] == ["a1", "a2"]
    listed = await scene.queue.get_jobs([JobState.WAITING])
    assert [job.id for job in listed] == ["a0", "a1", "a2", "b0"]
    assert (await scene.queue.get_counts())["waiting"] == 4


async def test_why_waiting_says_what_comes_before_and_what_holds(scene: Scene) -> None:
    await scene.scripts.heartbeat("w", b'{"id":"w"}')
    await scene.completed("done")
    await scene.change_record("done", started_at=1000, finished_at=3000)
    await fill(scene, {"a": 3, "b": 3})
    why = await scene.queue.why_waiting("b1")
    assert (why.state, why.group, why.ahead, why.is_estimate, why.held_by) == ("waiting", "b", 3, True, ())
    assert why.eta_ms == 8000
    await scene.add("plain")
    assert (await scene.queue.why_waiting("plain")).ahead == 0
    await scene.queue.pause_group("a")
    await scene.queue.pause()
    held = await scene.queue.why_waiting("a0")
    assert held.held_by == ("paused", "group_paused")
    assert await scene.queue.why_waiting("b1") == why, "known for a second"


async def test_why_waiting_says_that_there_is_no_worker(scene: Scene) -> None:
    await scene.add("a")
    assert (await scene.queue.why_waiting("a")).held_by == ("no_worker",)
    await scene.scripts.heartbeat("w", b'{"id":"w"}')
    await scene.add("b")
    assert (await scene.queue.why_waiting("b")).held_by == ()


async def test_the_order_of_random_groups_is_what_was_foretold(scene: Scene) -> None:
    draw = random.Random(3)
    for number in range(60):
        await scene.add(f"{number}", group=draw.choice("abcd"))
    order = await drain(scene)
    groups = {group.id for group in await scene.queue.get_groups()}
    assert groups == set("abcd")
    assert sorted(order, key=int) == [f"{number}" for number in range(60)]
    await check_queue(scene.queue)


async def test_a_long_idle_group_is_forgotten(scene: Scene) -> None:
    for number in range(40):
        await scene.completed(f"{number}", group=f"g{number}")
    members = await scene.client.zrange(f"{scene.prefix}groups:idle", 0, -1)
    await scene.client.zadd(f"{scene.prefix}groups:idle", dict.fromkeys(members, 1))
    for _ in range(3):
        await scene.scripts.move_due_jobs(10)
    assert await scene.queue.get_groups_count() == 0
    assert not [key async for key in scene.client.scan_iter(match=f"{scene.prefix}ginfo:*")]


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("group", {"group": "{a}"}),
        ("group", {"group": ""}),
        ("cost", {"cost": 0}),
        ("cost", {"cost": float("nan")}),
        ("cost", {"cost": "1"}),
        ("batch_key", {"batch_key": "a b"}),
        ("affinity_key", {"affinity_key": "x" * 300}),
    ],
)
async def test_a_wrong_option_is_refused_by_name(queue: Queue, field: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as refusal:
        await queue.add("paint", opts=JobOptions(**options))
    assert refusal.value.field == field
