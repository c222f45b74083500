"""Where features meet: each of these holds alone, and must hold beside the others."""

import asyncio
from collections.abc import Sequence

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.deduplication import Deduplication
from orchestrator.errors import QueueFull
from orchestrator.group import Batch, RateLimit
from orchestrator.job import JobOptions
from orchestrator.parent import Parent
from orchestrator.queue import Queue
from orchestrator.schedule import JobTemplate, RepeatOptions
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene
from tests.orchestrator.running import ended, until_active

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def calls_in(queue: Queue, seconds: float) -> int:
    """How many commands the server ran in so many seconds."""
    before = (await queue.client.info("stats"))["total_commands_processed"]
    await asyncio.sleep(seconds)
    return int((await queue.client.info("stats"))["total_commands_processed"] - before)


async def hold_until_past(scene: Scene, group: str) -> None:
    """The group's rate limit has just ended, and nobody has looked since."""
    await scene.client.zadd(f"{scene.prefix}groups:held", {group: 1})
    await scene.client.hset(f"{scene.prefix}ginfo:{group}", "limited_until", 1)


@pytest.mark.parametrize("held_by", ["pause", "concurrency"])
async def test_a_claim_that_nothing_may_follow_does_not_ask_again_at_once(scene: Scene, held_by: str) -> None:
    await scene.add("running")
    await scene.claim()
    await scene.add("held", group="a")
    await scene.scripts.set_group("g", "a", {"limited_ms": 100_000})
    await (scene.queue.pause() if held_by == "pause" else scene.queue.set_global_concurrency(1))
    await hold_until_past(scene, "a")
    sleeps = [(await scene.claim()).sleep_ms for _ in range(3)]
    assert 0 not in sleeps[1:]
    await check_queue(scene.queue)


async def test_a_program_that_claims_by_hand_sleeps_at_its_own_limit(queue: Queue, url: str) -> None:
    await queue.add("paint")
    await queue.add("paint")
    async with Worker(queue.name, None, url, concurrency=2, limiter=RateLimit(1, 60_000)) as worker:
        assert await worker.get_next_job(5)
        asked = asyncio.create_task(worker.get_next_job(2))
        assert await calls_in(queue, 1) < 300
        await asked


async def test_a_group_that_goes_on_at_a_rate_wakes_whoever_sleeps(scene: Scene) -> None:
    await scene.add("held", group="a")
    await scene.scripts.set_group("1", "a", {"paused": True})
    assert (await scene.claim()).sleep_ms == -1
    await scene.client.delete(f"{scene.prefix}marker")
    await scene.scripts.set_group("2", "a", {"paused": False, "limited_ms": 300})
    assert await scene.client.exists(f"{scene.prefix}marker")


async def test_a_slot_that_a_group_may_use_only_later_wakes_whoever_sleeps(
    scene: Scene,
) -> None:
    await scene.scripts.set_group("1", "a", {"concurrency": 1, "rate_max": 1, "rate_ms": 60_000})
    running = await scene.active("first", group="a")
    await scene.add("second", group="a")
    assert (await scene.claim()).sleep_ms == -1
    await scene.client.delete(f"{scene.prefix}marker")
    await scene.finish(running)
    assert await scene.client.exists(f"{scene.prefix}marker")
    assert (await scene.claim()).sleep_ms > 0


async def test_groups_that_may_not_start_hide_none_behind_them_from_a_choosy_worker(scene: Scene) -> None:
    for number in range(12):
        await scene.add(f"a{number}", group=f"g{number:02}")
        await scene.add(f"b{number}", group=f"g{number:02}")
    running = [(await scene.claim()).claims[0] for _ in range(12)]
    await scene.finish(running[-1])
    await scene.scripts.set_group_defaults("d", {"group_concurrency": 1})
    claims = await scene.scripts.move_to_active("t", "w:9", "worker", LEASE_MS, INTERVAL_MS, 1, b'{"warm":["x"]}')
    assert claims.claims or claims.sleep_ms == 0


async def test_a_retried_parent_does_not_wait_for_the_delay_of_its_last_run(scene: Scene) -> None:
    await scene.add("root", delay_ms=3_600_000)
    parent = Parent(scene.queue.name, "root")
    await scene.queue.add("page", None, JobOptions(id="leaf", parent=parent))
    await scene.queue.cancel("root", cancel_children=False)
    await scene.queue.retry("root")
    (claim,) = (await scene.claim()).claims
    await scene.finish(claim)
    job = await scene.queue.get_job("root")
    assert job is not None
    assert job.state == "waiting"
    await check_queue(scene.queue)


async def test_a_limit_of_an_idle_group_lasts_as_long_as_was_said(scene: Scene) -> None:
    await scene.add("once", group="a")
    await scene.finish((await scene.claim()).claims[0])
    await scene.queue.rate_limit_group("a", 7_200_000)
    await scene.client.zadd(f"{scene.prefix}groups:idle", {"a": 1})
    await scene.scripts.move_due_jobs(10)
    await scene.add("held", group="a")
    assert not (await scene.claim()).claims


async def test_a_worker_survives_what_its_warm_keys_raise(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None: ...

    def warm_keys() -> Sequence[str]:
        raise RuntimeError("no device")

    jobs = [await queue.add("paint") for _ in range(3)]
    async with Worker(queue.name, process, url, warm_keys=warm_keys):
        await ended(queue, *(job.id for job in jobs))


async def test_jobs_of_a_paused_group_take_no_place_in_a_batch(scene: Scene) -> None:
    for number in range(6):
        await scene.add(f"p{number}", group="p", batch_key="k")
    await scene.queue.pause_group("p")
    for number in range(4):
        await scene.add(f"f{number}", group="f", batch_key="k")
    claims = await scene.scripts.move_to_active(
        "t", "w:9", "worker", LEASE_MS, INTERVAL_MS, 4, b'{"batch":{"min_size":1,"linger_ms":0}}'
    )
    assert [claim.job.id for claim in claims.claims] == ["f0", "f1", "f2", "f3"]
    await check_queue(scene.queue)


async def test_a_job_that_no_worker_is_there_for_says_so(queue: Queue, url: str) -> None:
    job = await queue.add("paint")
    assert (await queue.why_waiting(job.id)).held_by == ("no_worker",)
    async with Worker(queue.name, None, url):

        async def is_known() -> bool:
            return await queue.get_workers_count() == 1

        await wait_until(is_known)
        assert (await Queue(queue.name, queue.client).why_waiting(job.id)).held_by == ()


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_a_job_that_leaves_a_batch_ends_at_once(queue: Queue, url: str, how: str) -> None:
    go_on = asyncio.Event()

    async def process(jobs: list[ActiveJob]) -> list[int]:
        await go_on.wait()
        return [1 for _ in jobs]

    one = await queue.add("paint", None, JobOptions(batch_key="k", timeout_ms=300 if how == "timeout" else 0))
    two = await queue.add("paint", None, JobOptions(batch_key="k"))
    async with Worker(queue.name, process, url, batch=Batch(2, 2, 1000)):
        await until_active(queue, 2)
        if how == "cancel":
            await queue.cancel(one.id)
        try:
            async with asyncio.timeout(6):
                await ended(queue, one.id)
        finally:
            go_on.set()
        first, second = await ended(queue, one.id, two.id)
    assert (first.state, second.state) == ("canceled" if how == "cancel" else "failed", "completed")
    assert first.stalled == 0
    await check_queue(queue)


async def test_a_schedule_adds_nothing_to_a_queue_that_is_being_obliterated(scene: Scene) -> None:
    await scene.add("one")
    epoch = (await scene.meta())["epoch"]
    await scene.scripts.obliterate(epoch, force=True, limit=100, closing_ms=60_000)
    with pytest.raises(QueueFull):
        await scene.queue.upsert_job_scheduler("s", RepeatOptions(every_ms=60_000), JobTemplate("paint"))
    assert await scene.queue.count() == 0


async def test_a_job_that_met_a_key_with_a_time_of_its_own_is_not_kept_back_for_ever(scene: Scene) -> None:
    held = await scene.active("first", deduplication=Deduplication("d", 60_000))
    await scene.queue.add(
        "paint", None, JobOptions(id="second", deduplication=Deduplication("d", keep_last_if_active=True))
    )
    await scene.finish(held)
    assert not await scene.client.exists(f"{scene.prefix}dedup_next:d")
    await check_queue(scene.queue)


async def test_the_first_job_of_a_schedule_waits_for_room(scene: Scene) -> None:
    await scene.add("one")
    await scene.scripts.set_limits("limits", max_waiting=1)
    await scene.queue.upsert_job_scheduler("s", RepeatOptions(every_ms=60_000), JobTemplate("paint"))
    assert await scene.queue.count() == 1
    await scene.claim()
    await pass_time(scene)
    await scene.scripts.move_due_jobs(10)
    assert await scene.queue.count() == 1, "the schedule's"
    await check_queue(scene.queue)


async def pass_time(scene: Scene) -> None:
    """The second is over after which a queue without room is looked at again."""
    await scene.change_meta(schedule_at=1)
