"""Behaviours that `lua/SEMANTICS.md` claims and that are no feature's own: clocks, order on odd paths, late calls."""

import time
from typing import Any

import pytest

from orchestrator import Deduplication, JobOptions, JobState, KeepJobs, LeaseLost, RepeatOptions, Worker, WrongState
from orchestrator.active_job import ActiveJob
from orchestrator.queue import Queue
from orchestrator.scripts import Finish, Report
from tests.conftest import wait_until
from tests.dump import dump
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene, drain
from tests.orchestrator.running import ended
from tests.record import change_meta

HOUR_S = 3600.0


async def test_instants_are_those_of_the_servers_clock(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, _ = await scene.client.time()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + HOUR_S)
    job = await scene.queue.add("paint", None, JobOptions(delay_ms=60_000))
    assert abs(job.created_at / 1000 - seconds) < 60
    assert job.due_at == job.created_at + 60_000
    await scene.queue.promote(job.id)
    (claim,) = (await scene.claim()).claims
    assert abs((claim.job.started_at or 0) / 1000 - seconds) < 60


async def test_lifo_holds_on_every_way_into_the_queue(scene: Scene) -> None:
    await scene.add("first")
    for job_id, delay_ms in (("delayed", 50_000), ("promoted", 60_000), ("twice", 0)):
        await scene.add(job_id, lifo=True, attempts=2, delay_ms=delay_ms)
    (twice,) = (await scene.claim()).claims
    assert twice.job.id == "twice"
    await scene.finish(twice, "failed", b'{"kind":"transient","message":"","details":{}}', 0)
    await scene.queue.promote("promoted")
    await scene.make_due()
    order = await drain(scene)
    assert order[-1] == "first"
    assert sorted(order[:3]) == ["delayed", "promoted", "twice"]


async def test_many_jobs_that_are_due_in_the_same_millisecond_start_in_the_order_of_their_adding(scene: Scene) -> None:
    jobs = await scene.queue.add_bulk([("paint", n, JobOptions(delay_ms=60_000)) for n in range(500)])
    assert len({job.due_at for job in jobs}) == 1
    await scene.make_due()
    for _ in range(10):
        await scene.scripts.move_due_jobs(100)
    claims = (await scene.claim(500)).claims
    while len(claims) < len(jobs):
        more = (await scene.claim(500)).claims
        assert more
        claims = [*claims, *more]
    assert [claim.job.id for claim in claims] == [job.id for job in jobs]


async def test_jobs_that_are_due_wait_in_their_place_while_the_queue_is_paused(scene: Scene) -> None:
    await scene.add("later", delay_ms=60_000)
    await scene.queue.pause()
    await scene.make_due()
    await scene.scripts.move_due_jobs(10)
    job = await scene.queue.get_job("later")
    assert job is not None
    assert job.state == JobState.WAITING
    assert not (await scene.claim()).claims


async def test_a_wake_up_that_was_lost_costs_no_more_than_a_look(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        pass

    await queue.pause()
    job = await queue.add("paint")
    async with Worker(queue.name, process, url):
        client: Any = queue.client

        async def sleeps() -> bool:
            clients = await client.client_list()
            return any(each["cmd"] == "bzpopmin" and "b" in each["flags"] for each in clients)

        await wait_until(sleeps)
        # as if `resume` had been cut off before it woke anybody:
        await change_meta(client, queue.keys.meta, paused=None)
        began = time.monotonic()
        await ended(queue, job.id)
    assert time.monotonic() - began < 5


async def test_a_finish_brings_the_next_job_in_the_same_call(scene: Scene) -> None:
    claim = await scene.active("a")
    await scene.add("b")
    ending = Finish("a", claim.lease, "completed", b"1", -1)
    claims = await scene.scripts.move_to_finished(scene.token(), "w:0", "worker", LEASE_MS, INTERVAL_MS, 1, [ending])
    assert [each.job.id for each in claims.claims] == ["b"]


async def test_a_job_that_a_count_pushes_out_leaves_nothing_behind(scene: Scene) -> None:
    kept = JobOptions(remove_on_complete=KeepJobs(count=1))
    for job_id in ("old", "young"):  # in this order also where both end in one millisecond
        options = {"remove_on_complete": kept.remove_on_complete, "deduplication": Deduplication(f"d-{job_id}")}
        claim = await scene.active(job_id, **options)
        await scene.scripts.add_log(job_id, claim.lease, 1, "line")
        await scene.finish(claim)
    left = await dump(scene.client, scene.prefix)
    assert [key for key in left if key.endswith("old")] == ["gone:old"]
    assert [job.id for job in await scene.queue.get_jobs([JobState.COMPLETED])] == ["young"]


async def test_progress_and_logs_after_the_end_are_refused(scene: Scene) -> None:
    claim = await scene.completed("a")
    with pytest.raises(LeaseLost):
        await scene.scripts.update_progress("a", claim.lease, Report(1, "", b"50", b""))
    with pytest.raises(LeaseLost):
        await scene.scripts.add_log("a", claim.lease, 2, "line")
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.progress is None


async def test_a_running_job_cannot_be_removed_also_after_its_lease(scene: Scene) -> None:
    await scene.active("a")
    await scene.end_leases()
    with pytest.raises(WrongState):
        await scene.queue.remove("a")


async def test_a_drain_takes_the_job_of_a_schedule_and_leaves_the_schedule(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("s", RepeatOptions(every_ms=3_600_000))
    assert await scene.queue.drain() == 1
    schedule = await scene.queue.get_job_scheduler("s")
    assert schedule is not None
    assert schedule.next_at is not None
    assert await scene.client.zscore(f"{scene.prefix}schedules", "s") == schedule.next_at
