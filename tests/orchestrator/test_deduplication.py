"""At most one job of a deduplication id at a time: who holds it, for how long, and what becomes of the others."""

import asyncio
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.deduplication import Deduplication
from orchestrator.errors import GroupFull, InvalidOption, QueueFull
from orchestrator.events import Event
from orchestrator.job import Job, JobOptions, JobState, KeepJobs
from orchestrator.queue import Queue
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.dump import dump
from tests.invariants import check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene, drain

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

POISON = b'{"kind":"poison","message":"","details":{}}'
TRANSIENT = b'{"kind":"transient","message":"","details":{}}'
SIMPLE = Deduplication("k")
THROTTLE = Deduplication("k", 60_000)
DEBOUNCE = Deduplication("k", 60_000, replace=True)
KEEP_LAST = Deduplication("k", keep_last_if_active=True)


async def add(scene: Scene, deduplication: Deduplication, data: Any = None, **options: Any) -> Job:
    """Add a job under a deduplication id."""
    return await scene.queue.add("paint", data, JobOptions(deduplication=deduplication, **options))


async def told(scene: Scene, type_: str) -> list[Event]:
    """The queue's events of a type."""
    events = await scene.queue.events_after("0-0")
    assert events is not None
    return [event for event in events if event.type == type_]


# ── simple ───────────────────────────────────────────────────────────────────────────────────────────


async def test_while_a_job_waits_or_runs_its_twin_is_answered_with_it(scene: Scene) -> None:
    first = await add(scene, SIMPLE, 1)
    assert not first.deduplicated
    second = await add(scene, SIMPLE, 2, id="second")
    assert (second.id, second.deduplicated, second.duplicated, bytes(second.data)) == (first.id, True, False, b"1")
    (claim,) = (await scene.claim()).claims
    third = await add(scene, SIMPLE, 3)
    assert (third.id, third.state, third.deduplicated) == (first.id, "active", True)
    assert await scene.queue.get_deduplication_job_id("k") == first.id
    assert await scene.queue.get_job("second") is None
    events = await told(scene, "deduplicated")
    assert [(event.job, event.fields["deduplication_id"]) for event in events] == [(first.id, "k")] * 2
    assert events[0].fields["deduplicated_job"] == "second"
    await scene.finish(claim)
    assert await scene.queue.get_deduplication_job_id("k") is None
    assert not (await add(scene, SIMPLE)).deduplicated
    await check_queue(scene.queue)


@pytest.mark.parametrize("end", ["completed", "failed", "canceled", "cancel", "remove", "drain", "expire", "stall"])
@pytest.mark.parametrize("keep", [False, True], ids=["kept", "not kept"])
async def test_a_key_without_a_time_dies_with_its_job_however_that_ends(scene: Scene, end: str, keep: bool) -> None:
    options: dict[str, Any] = {"remove_on_complete": keep, "remove_on_fail": keep, "max_stalled": 0}
    await add(scene, SIMPLE, id="a", expires_ms=90_000, **options)
    match end:
        case "completed" | "failed" | "canceled":
            await scene.finish((await scene.claim()).claims[0], end, POISON)
        case "cancel":
            await scene.queue.cancel("a")
        case "remove":
            await scene.queue.remove("a")
        case "drain":
            await scene.queue.drain()
        case "expire":
            await scene.pass_deadlines()
            await scene.scripts.move_due_jobs(10)
        case "stall":
            await scene.claim()
            await scene.end_leases()
            await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    assert await scene.queue.get_deduplication_job_id("k") is None
    assert not (await add(scene, SIMPLE, id="b")).deduplicated
    await check_queue(scene.queue)


async def test_an_attempt_that_fails_or_stalls_does_not_free_the_key(scene: Scene) -> None:
    await add(scene, SIMPLE, id="a", attempts=3)
    await scene.finish((await scene.claim()).claims[0], "failed", TRANSIENT, 50_000)
    assert (await add(scene, SIMPLE)).state == "delayed"
    await scene.queue.promote("a")
    await scene.claim()
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    assert (await add(scene, SIMPLE)).id == "a"


async def test_a_key_whose_job_vanished_blocks_nobody(scene: Scene) -> None:
    await scene.client.set(f"{scene.prefix}dedup:k", "nobody")
    assert not (await add(scene, SIMPLE)).deduplicated
    assert await scene.client.pttl(f"{scene.prefix}dedup:k") == -1


async def test_many_twins_at_once_make_one_job(scene: Scene) -> None:
    jobs = await asyncio.gather(*(add(scene, SIMPLE, number) for number in range(30)))
    assert len({job.id for job in jobs}) == 1
    assert sum(not job.deduplicated for job in jobs) == 1
    assert await scene.queue.count() == 1


async def test_the_same_id_comes_before_the_same_deduplication_id(scene: Scene) -> None:
    await add(scene, SIMPLE, id="a")
    again = await add(scene, SIMPLE, id="a")
    assert (again.duplicated, again.deduplicated) == (True, False)


# ── throttle ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_throttle_key_lives_for_its_own_time_whatever_becomes_of_its_job(scene: Scene) -> None:
    first = await add(scene, THROTTLE, 1, remove_on_complete=True)
    assert 50_000 < await scene.client.pttl(f"{scene.prefix}dedup:k") <= 60_000
    await drain(scene)
    assert await scene.queue.get_job(first.id) is None
    second = await add(scene, THROTTLE, 2)
    assert (second.id, second.state, second.created_at) == (first.id, "completed", first.created_at)
    assert (second.deduplicated, second.duplicated) == (True, False)
    assert await scene.queue.count() == 0
    assert await scene.queue.get_deduplication_job_id("k") == first.id
    await scene.client.pexpire(f"{scene.prefix}dedup:k", 1)

    async def is_over() -> bool:
        return not await scene.client.exists(f"{scene.prefix}dedup:k")

    await wait_until(is_over)
    assert not (await add(scene, THROTTLE, 3)).deduplicated


async def test_a_throttle_key_of_a_kept_job_gives_the_job_as_it_is(scene: Scene) -> None:
    first = await add(scene, THROTTLE, 1)
    await drain(scene)
    met = await add(scene, THROTTLE, 2)
    assert (met.id, met.state, met.result_as(int), bytes(met.data)) == (first.id, "completed", 1, b"1")


async def test_a_throttle_key_outlives_a_job_that_was_removed(scene: Scene) -> None:
    first = await add(scene, THROTTLE)
    await scene.queue.remove(first.id)
    met = await add(scene, THROTTLE)
    assert (met.id, met.deduplicated) == (first.id, True)


async def test_only_with_extend_a_twin_starts_the_time_anew(scene: Scene) -> None:
    key = f"{scene.prefix}dedup:k"
    await add(scene, THROTTLE)
    await scene.client.pexpire(key, 30_000)
    await add(scene, THROTTLE)
    assert await scene.client.pttl(key) <= 30_000
    await add(scene, Deduplication("k", 60_000, extend=True))
    assert await scene.client.pttl(key) > 50_000


# ── debounce ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("extend", [False, True])
async def test_a_debounced_add_replaces_the_delayed_one(scene: Scene, extend: bool) -> None:
    debounce = Deduplication("k", 60_000, extend=extend, replace=True)
    first = await add(scene, debounce, 1, delay_ms=40_000, expires_ms=90_000)
    await scene.client.pexpire(f"{scene.prefix}dedup:k", 30_000)
    second = await add(scene, debounce, 2, delay_ms=40_000)
    assert (second.deduplicated, second.id != first.id, second.state) == (False, True, "delayed")
    assert await scene.queue.get_job(first.id) is None
    assert await scene.queue.get_deduplication_job_id("k") == second.id
    assert (await scene.client.pttl(f"{scene.prefix}dedup:k") > 30_000) == extend
    (event,) = await told(scene, "deduplicated")
    assert (event.job, event.fields["deduplicated_job"]) == (second.id, first.id)
    assert [event.job for event in await told(scene, "removed")] == [first.id]
    await check_queue(scene.queue)
    await scene.queue.promote(second.id)
    met = await add(scene, debounce, 3, delay_ms=40_000)
    assert (met.id, met.deduplicated) == (second.id, True), "one that waits is not replaced"


async def test_a_debounce_without_a_time_dies_with_its_last_job(scene: Scene) -> None:
    forever = Deduplication("k", replace=True)
    for number in range(3):
        last = await add(scene, forever, number, delay_ms=50_000)
    assert [job.id for job in await scene.queue.get_jobs([JobState.DELAYED])] == [last.id]
    await scene.queue.promote(last.id)
    await drain(scene)
    assert await scene.queue.get_deduplication_job_id("k") is None


async def test_a_replacement_needs_no_room_of_its_own(scene: Scene) -> None:
    await scene.queue.set_max_waiting(1)
    first = await add(scene, DEBOUNCE, 1, delay_ms=50_000)
    second = await add(scene, DEBOUNCE, 2, delay_ms=50_000)
    assert second.id != first.id
    assert await scene.queue.count() == 1


# ── keep the last ────────────────────────────────────────────────────────────────────────────────────


async def test_a_replacement_needs_room_in_its_group(scene: Scene) -> None:
    await scene.queue.set_group_max_waiting("g", 1)
    await scene.add("first", group="g")
    await scene.add("held", deduplication=DEBOUNCE, delay_ms=50_000)
    into_g = JobOptions(group="g", deduplication=DEBOUNCE)
    before = await dump(scene.client, scene.prefix)
    with pytest.raises(GroupFull):
        await scene.queue.add("paint", None, into_g)
    with pytest.raises(GroupFull):
        await scene.queue.add_bulk([("paint", None, into_g)])
    second = Deduplication("second", replace=True)
    later, now = JobOptions(deduplication=second, delay_ms=1000), JobOptions(group="g", deduplication=second)
    with pytest.raises(GroupFull):  # the second of these would replace the first
        await scene.queue.add_bulk([("paint", None, later), ("paint", None, now)])
    assert await dump(scene.client, scene.prefix) == before
    await scene.queue.set_group_max_waiting("g", 2)
    (job,) = await scene.queue.add_bulk([("paint", None, into_g)])
    assert not job.deduplicated
    await check_queue(scene.queue)


async def test_a_key_whose_job_vanished_counts_as_free_where_room_is_counted(scene: Scene) -> None:
    await scene.add("a")
    await scene.client.set(f"{scene.prefix}dedup:k", "nobody")
    await scene.queue.set_max_waiting(1)
    with pytest.raises(QueueFull):
        await scene.queue.add_bulk([("paint", None, JobOptions(deduplication=Deduplication("k")))])
    await scene.queue.set_max_waiting(2)
    jobs = [("paint", None, JobOptions(deduplication=Deduplication("k"))) for _ in range(2)]
    assert [job.deduplicated for job in await scene.queue.add_bulk(jobs)] == [False, True]


async def test_the_newest_add_while_a_job_runs_comes_when_that_ends(scene: Scene) -> None:
    await add(scene, KEEP_LAST, 0, id="a")
    assert (await add(scene, KEEP_LAST, 1, id="b")).id == "a", "while it waits, twins are dropped"
    (claim,) = (await scene.claim()).claims
    for number, job_id in enumerate(("c", "d", "e")):
        met = await add(scene, KEEP_LAST, number, id=job_id, priority=7, delay_ms=50_000, lifo=True)
        assert (met.id, met.deduplicated) == ("a", True)
    assert await scene.queue.count() == 0
    await scene.finish(claim)
    (job,) = await scene.queue.get_jobs([JobState.WAITING, JobState.DELAYED])
    assert (job.id, job.state, job.priority, job.header.lifo, bytes(job.data)) == ("e", "delayed", 7, True, b"2")
    assert job.due_at == job.created_at + 50_000
    assert await scene.queue.get_deduplication_job_id("k") == "e"
    assert not await scene.client.exists(f"{scene.prefix}dedup_next:k")
    await check_queue(scene.queue)


async def test_who_replaces_a_delayed_holder_replaces_the_one_that_was_kept_back_too(scene: Scene) -> None:
    both = Deduplication("k", replace=True, keep_last_if_active=True)
    await add(scene, both, 0, id="a", attempts=2)
    (claim,) = (await scene.claim()).claims
    await add(scene, both, 1, id="b")
    await scene.finish(claim, "failed", TRANSIENT, 50_000)
    assert not (await add(scene, both, 2, id="c")).deduplicated
    assert await drain(scene) == ["c"]
    assert await scene.queue.get_job("b") is None
    await check_queue(scene.queue)


@pytest.mark.parametrize("end", ["failed", "canceled", "stall", "retried"])
async def test_the_kept_one_comes_at_any_final_end_and_not_before(scene: Scene, end: str) -> None:
    await add(scene, KEEP_LAST, 0, id="a", attempts=2, max_stalled=0)
    (claim,) = (await scene.claim()).claims
    await add(scene, KEEP_LAST, 1, id="b")
    if end == "retried":
        await scene.finish(claim, "failed", TRANSIENT, 0)
        assert await scene.queue.get_job("b") is None
        assert (await add(scene, KEEP_LAST, 2, id="c")).id == "a", "the newest is kept, though the holder waits now"
        await scene.finish((await scene.claim()).claims[0])
        assert [job.id for job in await scene.queue.get_jobs([JobState.WAITING])] == ["c"]
        return
    if end == "stall":
        await scene.end_leases()
        await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    else:
        await scene.finish(claim, end, POISON)
    assert [job.id for job in await scene.queue.get_jobs([JobState.WAITING])] == ["b"]
    await check_queue(scene.queue)


async def test_the_kept_one_is_not_lost_when_its_holder_is_removed_or_its_key_freed(scene: Scene) -> None:
    for job_id, free in (("a", scene.queue.remove), ("b", None)):
        await add(scene, KEEP_LAST, 0, id=job_id, attempts=2)
        (claim,) = (await scene.claim()).claims
        await add(scene, KEEP_LAST, 1, id=f"after-{job_id}")
        if free is None:
            assert await scene.queue.remove_deduplication_key("k")
            await scene.finish(claim)
        else:
            await scene.finish(claim, "failed", TRANSIENT, 50_000)
            await free(job_id)
        assert await drain(scene) == [f"after-{job_id}"]


async def test_a_twin_with_a_time_gives_none_to_a_key_that_lasts_as_its_job(scene: Scene) -> None:
    await add(scene, KEEP_LAST, id="a")
    (claim,) = (await scene.claim()).claims
    await add(scene, KEEP_LAST, id="next")
    await add(scene, Deduplication("k", 50, extend=True), id="b")
    assert await scene.client.pttl(f"{scene.prefix}dedup:k") == -1
    await scene.finish(claim)
    assert await drain(scene) == ["next"]


async def test_none_is_kept_back_for_the_end_of_a_job_whose_key_has_a_time(scene: Scene) -> None:
    await add(scene, THROTTLE, id="a")
    (claim,) = (await scene.claim()).claims
    assert (await add(scene, KEEP_LAST, id="b")).id == "a"
    assert not await scene.client.exists(f"{scene.prefix}dedup_next:k")
    await scene.finish(claim)
    await check_queue(scene.queue)


async def test_a_kept_one_whose_id_was_taken_meanwhile_is_told_as_duplicated(scene: Scene) -> None:
    claim = await scene.active("a", deduplication=KEEP_LAST)
    await add(scene, KEEP_LAST, 1, id="b")
    await scene.add("b")
    await scene.finish(claim)
    assert [event.job for event in await told(scene, "duplicated")] == ["b"]
    assert await scene.queue.get_deduplication_job_id("k") is None
    await check_queue(scene.queue)


async def test_under_a_worker_at_most_one_runs_and_the_last_wins(queue: Queue, url: str) -> None:
    seen: list[int] = []
    running = 0
    go = asyncio.Event()

    async def process(job: ActiveJob) -> None:
        nonlocal running
        running += 1
        assert running == 1
        seen.append(job.data)
        await go.wait()
        running -= 1

    async with Worker(queue.name, process, url, concurrency=4):
        await queue.add("paint", 0, JobOptions(deduplication=KEEP_LAST))
        await wait_until(lambda: seen == [0])
        for number in range(1, 20):
            await queue.add("paint", number, JobOptions(deduplication=KEEP_LAST))
        go.set()
        await wait_until(lambda: len(seen) == 2)
    assert seen == [0, 19]
    await check_queue(queue)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_key_can_be_freed_by_hand_and_by_its_own_job_only(scene: Scene) -> None:
    first = await add(scene, SIMPLE)
    assert not await scene.queue.remove_deduplication_key("k", "another")
    assert await scene.queue.remove_deduplication_key("k", first.id)
    assert not await scene.queue.remove_deduplication_key("k")
    second = await add(scene, SIMPLE)
    assert not second.deduplicated
    await scene.queue.cancel(first.id)
    assert await scene.queue.get_deduplication_job_id("k") == second.id, "who is no holder frees nothing"


async def test_a_retry_by_hand_takes_the_key_again_only_if_it_is_free(scene: Scene) -> None:
    for job_id in ("a", "b"):
        await add(scene, SIMPLE, id=job_id)
        await scene.finish((await scene.claim()).claims[0], "failed", POISON)
    await scene.queue.retry("a")
    assert await scene.queue.get_deduplication_job_id("k") == "a"
    await scene.queue.retry("b")
    assert await scene.queue.get_deduplication_job_id("k") == "a"
    assert sorted(await drain(scene)) == ["a", "b"]
    assert await scene.queue.get_deduplication_job_id("k") is None


async def test_a_record_that_ends_by_its_age_leaves_no_key_behind(scene: Scene) -> None:
    await add(scene, SIMPLE, id="a", remove_on_complete=KeepJobs(age_s=1000))
    await drain(scene)
    await scene.end_retention("a", "completed")
    await scene.scripts.remove_expired(10)
    assert not [key async for key in scene.client.scan_iter(f"{scene.prefix}dedup*")]


@pytest.mark.parametrize(
    ("field", "deduplication"),
    [
        ("deduplication", "k"),
        ("deduplication", {"id": "k"}),
        ("deduplication.id", Deduplication("")),
        ("deduplication.id", Deduplication("a b")),
        ("deduplication.id", Deduplication("a}b")),
        ("deduplication.id", Deduplication("x" * 129)),
        ("deduplication.id", Deduplication("a\n")),
        ("deduplication.id", Deduplication(7)),  # type: ignore[arg-type]
        ("deduplication.ttl_ms", Deduplication("k", 0)),
        ("deduplication.ttl_ms", Deduplication("k", -1)),
        ("deduplication.ttl_ms", Deduplication("k", 1.5)),  # type: ignore[arg-type]
        ("deduplication.ttl_ms", Deduplication("k", True)),
        ("deduplication.ttl_ms", Deduplication("k", 2**63)),
        ("deduplication.extend", Deduplication("k", extend=True)),
        ("deduplication.extend", Deduplication("k", 1, extend=1)),  # type: ignore[arg-type]
        ("deduplication.replace", Deduplication("k", replace="yes")),  # type: ignore[arg-type]
        ("deduplication.keep_last_if_active", Deduplication("k", keep_last_if_active=None)),  # type: ignore[arg-type]
        ("deduplication.ttl_ms", Deduplication("k", 5, keep_last_if_active=True)),
    ],
    ids=str,
)
async def test_a_deduplication_that_makes_no_sense_is_refused(queue: Queue, field: str, deduplication: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.add("paint", None, JobOptions(deduplication=deduplication))
    assert refused.value.field == field


async def test_what_is_owed_is_not_deduplicated(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="fan_out"):
        await queue.fan_out("paint", None, JobOptions(deduplication=SIMPLE))


async def test_a_retried_job_holds_its_own_throttling_key_again(scene: Scene) -> None:
    first = await add(scene, THROTTLE)
    (claim,) = (await scene.claim()).claims
    await scene.finish(claim, "failed", POISON)
    key = f"{scene.prefix}dedup:k"
    assert await scene.client.get(key) == f"{first.id} failed {first.created_at}".encode(), "it outlives its job"
    await scene.queue.retry(first.id)
    assert await scene.client.get(key) == first.id.encode()
