"""What a processor does with its job's children: adds them, waits for them, reads them."""

import asyncio
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.errors import FlowRefused, InvalidOption, WaitingChildrenError
from orchestrator.job import JobOptions, JobState, KeepJobs
from orchestrator.parent import Parent
from orchestrator.queue import Queue
from orchestrator.scripts import Finish
from orchestrator.worker import Worker
from tests.invariants import check_queue
from tests.lua.scenarios.flows import child, claim, entry, flow
from tests.lua.scenarios.table import ERROR
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene, types
from tests.orchestrator.running import ended

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def state_of(scene: Scene, job_id: str) -> str:
    job = await scene.queue.get_job(job_id)
    return "gone" if job is None else str(job.state)


# ── adding at run time ───────────────────────────────────────────────────────────────────────────────


async def test_a_processor_adds_children_waits_for_them_and_goes_on_with_their_results(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> Any:
        if job.name == "page":
            return job.data * 10
        if job.attempt == 1:
            for n in range(3):
                await queue.add("page", n, JobOptions(id=f"page{n}", parent=Parent(queue.name, job.id)))
            assert (await job.get_dependencies_count()).unprocessed > 0
            raise WaitingChildrenError
        await job.wait_for_children()
        return sorted((await job.get_children_values()).values())

    async with Worker(queue.name, process, url, concurrency=1):
        job = await queue.add("book", None, JobOptions(attempts=1))
        (book,) = await ended(queue, job.id)
    assert (book.state, book.result_as(list)) == ("completed", [0, 10, 20])
    assert (book.attempts_started, book.attempts_made) == (2, 1), "waiting uses no attempt"
    history = await queue.get_history(job.id)
    assert types(history) == ["added", "active", "waiting-children", "waiting", "active", "completed"]
    assert history[2].fields == {"prev": "active", "pending": 3}
    assert history[3].fields == {"prev": "waiting-children"}
    await check_queue(queue)


async def test_wait_for_children_waits_only_while_some_are_pending(queue: Queue, url: str) -> None:
    runs: list[int] = []

    async def process(job: ActiveJob) -> Any:
        if job.name == "child":
            return 1
        runs.append(job.attempt)
        await queue.add("child", None, JobOptions(id="only", parent=Parent(queue.name, job.id)))
        await job.wait_for_children()
        return await job.get_children_values()

    async with Worker(queue.name, process, url):
        job = await queue.add("parent")
        (parent,) = await ended(queue, job.id)
    assert (runs, parent.result_as(dict)) == ([1, 2], {f"{queue.name}:only": 1})


async def test_a_parent_that_completes_before_its_children_fails_for_good_and_is_told_why(
    queue: Queue, url: str
) -> None:
    async def process(job: ActiveJob) -> Any:
        await queue.add("late", None, JobOptions(id="late", delay_ms=60_000, parent=Parent(queue.name, job.id)))
        return 1

    async with Worker(queue.name, process, url):
        job = await queue.add("hasty", None, JobOptions(attempts=5))
        (hasty,) = await ended(queue, job.id)
    assert hasty.error is not None
    assert (hasty.state, hasty.reason, hasty.error.kind, hasty.result) == ("failed", "error", "poison", None)
    assert "raise WaitingChildrenError" in hasty.error.message
    await check_queue(queue)


async def test_a_parent_that_waits_for_nothing_takes_its_old_place(scene: Scene) -> None:
    root = await scene.active("root", attempts=2)
    await scene.add("later")
    assert await scene.finish(root, "waiting-children") == "waiting"
    again = await claim(scene)
    assert (again.job.id, again.job.attempts_made, again.job.attempts_started) == ("root", 0, 2)
    await check_queue(scene.queue)


async def test_the_last_child_may_end_before_its_parent_says_that_it_waits(scene: Scene) -> None:
    root = await scene.active("root")
    await child(scene, "a")
    await scene.finish(await claim(scene))
    await check_queue(scene.queue)
    assert await scene.finish(root, "waiting-children") == "waiting"
    assert await scene.finish(await claim(scene)) == "completed"
    await check_queue(scene.queue)


@pytest.mark.parametrize("delay_ms", [0, 50_000])
async def test_a_job_that_has_not_started_waits_for_a_child_that_it_is_given(scene: Scene, delay_ms: int) -> None:
    await scene.add("root", delay_ms=delay_ms, priority=3, expires_ms=90_000)
    before = await scene.queue.get_job("root")
    assert before is not None
    await child(scene, "a")
    assert await state_of(scene, "root") == "waiting-children"
    await check_queue(scene.queue)
    await scene.finish(await claim(scene))
    assert await scene.queue.get_job("root") == before.replace(pending_children=0)
    await check_queue(scene.queue)
    await scene.pass_deadlines()
    await scene.scripts.move_due_jobs(10)
    assert await state_of(scene, "root") == "failed", "its deadline was kept"


@pytest.mark.parametrize("pause_ms", [0, 60_000])
async def test_a_parent_that_is_tried_again_waits_for_its_children_and_for_its_pause(
    scene: Scene, pause_ms: int
) -> None:
    root = await scene.active("root", attempts=3)
    await child(scene, "a")
    assert await scene.finish(root, "failed", ERROR, pause_ms) == "waiting-children"
    await check_queue(scene.queue)
    await scene.finish(await claim(scene))
    assert await state_of(scene, "root") == ("delayed" if pause_ms else "waiting")
    await check_queue(scene.queue)
    history = await scene.queue.get_history("root")
    assert history[2].fields["error"]["kind"] == "transient"
    await scene.make_due()
    assert (await claim(scene)).job.attempts_made == 1


@pytest.mark.parametrize("starts", [True, False])
async def test_a_delay_that_is_over_does_not_begin_again_for_a_child(scene: Scene, starts: bool) -> None:
    await flow(scene, "first", root={"delay_ms": 60_000})
    await scene.add("plain", delay_ms=60_000)
    await scene.finish(await claim(scene))
    await scene.make_due()
    await scene.scripts.move_due_jobs(10)
    running = (await scene.claim(2)).claims if starts else []
    for parent in ("root", "plain"):
        await child(scene, f"of-{parent}", parent)
    for each in running:
        assert await scene.finish(each, "waiting-children") == "waiting-children"
    await check_queue(scene.queue)
    for each in (await scene.claim(2)).claims:
        await scene.finish(each)
    assert [await state_of(scene, parent) for parent in ("root", "plain")] == ["waiting", "waiting"]
    await check_queue(scene.queue)


async def test_a_pause_that_ended_while_a_parent_waited_costs_it_no_more(scene: Scene) -> None:
    root = await scene.active("root", attempts=3)
    await child(scene, "a")
    await scene.finish(root, "failed", ERROR, 60_000)
    await scene.change_record("root", due_at=1)
    await scene.finish(await claim(scene))
    history = types(await scene.queue.get_history("root"))
    assert history == ["added", "active", "waiting-children", "waiting"]
    await check_queue(scene.queue)


async def test_a_parent_whose_worker_is_lost_waits_for_its_children_first(scene: Scene) -> None:
    await scene.active("root")
    await child(scene, "a")
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    assert types(await scene.queue.get_history("root")) == ["added", "active", "stalled", "waiting-children"]
    await check_queue(scene.queue)


async def test_a_child_that_is_there_is_not_added_twice_nor_given_another_parent(scene: Scene) -> None:
    await scene.add("alone")
    await scene.add("root", delay_ms=9000)
    await child(scene, "a")
    again = await scene.queue.add("paint", None, JobOptions(id="a", parent=Parent(scene.queue.name, "root")))
    assert again.duplicated
    assert await scene.queue.get_dependencies_count("root") == (1, 0, 0, 0)
    for taken, parent in (("alone", "root"), ("a", "alone")):
        with pytest.raises(FlowRefused, match=f"job {taken} is there already, and not as a child of {parent}"):
            await scene.queue.add("paint", None, JobOptions(id=taken, parent=Parent(scene.queue.name, parent)))
    await check_queue(scene.queue)


async def test_a_child_needs_a_parent_that_is_there_and_has_not_finished(scene: Scene) -> None:
    await scene.failed("root")
    for parent, reason in (("root", "is failed"), ("nobody", "there is no job nobody")):
        with pytest.raises(FlowRefused, match=reason):
            await scene.queue.add("paint", None, JobOptions(id="a", parent=Parent(scene.queue.name, parent)))
    assert await scene.queue.get_job("a") is None
    await check_queue(scene.queue)


async def test_a_parent_of_another_tag_is_refused_before_anything_is_sent(queue: Queue) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.add("paint", None, JobOptions(parent=Parent("elsewhere", "a")))
    assert refused.value.field == "parent.queue"
    for wrong in ("a", ("q", "a"), Parent("q", "?"), Parent("?", "a")):
        with pytest.raises(InvalidOption) as refused:
            await queue.add("paint", None, JobOptions(parent=wrong))  # type: ignore[arg-type]
        assert refused.value.field.startswith("parent")


async def test_children_nest_no_deeper_than_twenty_levels(scene: Scene) -> None:
    await scene.add("j1", delay_ms=90_000)
    for level in range(2, 21):
        await child(scene, f"j{level}", f"j{level - 1}")
    with pytest.raises(FlowRefused, match="at most 20 levels"):
        await scene.queue.add("paint", None, JobOptions(parent=Parent(scene.queue.name, "j20")))
    await check_queue(scene.queue)


async def test_a_parent_has_no_more_than_five_thousand_children(scene: Scene) -> None:
    await scene.active("root")
    await child(scene, "a")
    fields = {f"{scene.queue.name}:x{n}": "c1" for n in range(4999)}
    await scene.client.hset(f"{scene.prefix}children:root", mapping=fields)
    with pytest.raises(FlowRefused, match="would have more than 5000 children"):
        await scene.queue.add("paint", None, JobOptions(parent=Parent(scene.queue.name, "root")))


async def test_a_child_that_is_added_again_after_its_record_has_gone_is_counted_once(scene: Scene) -> None:
    await flow(scene, "a", "b", remove_on_complete=True)
    await scene.finish(await claim(scene))
    assert await scene.scripts.get_dependencies_count("root") == (1, 1, 0, 0)
    await child(scene, "a")
    assert await scene.scripts.get_dependencies_count("root") == (2, 0, 0, 0)
    await check_queue(scene.queue)


# ── how long it is kept ──────────────────────────────────────────────────────────────────────────────


async def test_what_a_parent_knows_lives_as_long_as_its_record(scene: Scene) -> None:
    keep = KeepJobs(age_s=600)
    await flow(scene, "a", root={"remove_on_complete": keep, "remove_on_fail": keep})
    key = f"{scene.prefix}children:root"
    await scene.finish(await claim(scene))
    assert await scene.client.pttl(key) == -1
    await scene.finish(await claim(scene))
    assert await scene.client.pexpiretime(key) == await scene.client.pexpiretime(f"{scene.prefix}state:root")
    assert 500_000 < await scene.client.pttl(key) <= 600_000
    await scene.queue.retry("root")
    assert await scene.client.pttl(key) == -1
    assert await scene.queue.get_children_values("root") == {f"{scene.queue.name}:a": 1}
    await check_queue(scene.queue)


async def test_a_child_that_ends_after_its_parent_is_gone_ends_like_any_job(scene: Scene) -> None:
    await flow(scene, "a", "b", root={"remove_on_fail": True})
    await scene.finish(await claim(scene), "failed", ERROR)
    assert await state_of(scene, "root") == "gone"
    assert not await scene.client.exists(f"{scene.prefix}children:root")
    assert await scene.finish(await claim(scene), "failed", ERROR) == "failed"
    assert not await scene.client.exists(f"{scene.prefix}children:root")
    await check_queue(scene.queue)


async def test_a_parent_that_waits_is_in_counts_pages_and_events(scene: Scene) -> None:
    await flow(scene, "a", root={"priority": 4})
    counts = await scene.queue.get_counts()
    assert (counts["waiting-children"], counts["waiting"], counts["prioritized"]) == (1, 1, 0)
    (root,) = await scene.queue.get_jobs([JobState.WAITING_CHILDREN])
    assert (root.id, root.pending_children) == ("root", 1)
    recent, _ = await scene.queue.get_recent()
    assert [job.id for job in recent] == ["a", "root"]


async def test_two_children_that_end_in_the_same_call_release_their_parent_once(scene: Scene) -> None:
    await flow(scene, "a", "b")
    one, other = await claim(scene), await claim(scene)
    ends = [Finish(each.job.id, each.lease, "completed", b"1") for each in (one, other)]
    claims = await scene.scripts.move_to_finished("t", "w:9", "worker", LEASE_MS, INTERVAL_MS, 1, ends)
    assert claims.outcomes == ["completed", "completed"]
    assert [each.job.id for each in claims.claims] == ["root"]
    assert types(await scene.queue.get_history("root")) == ["added", "waiting", "active"]
    await check_queue(scene.queue)


async def test_children_that_end_at_the_same_time_on_many_connections_release_their_parent_once(
    scene: Scene, url: str
) -> None:
    await flow(scene, *[f"c{n}" for n in range(30)])
    claims = (await scene.claim(30)).claims
    queues = [Queue(scene.queue.name, url) for _ in range(5)]

    async def end(number: int) -> None:
        claimed = claims[number]
        finish = Finish(claimed.job.id, claimed.lease, "completed", b"1")
        scripts = queues[number % 5].scripts
        await scripts.move_to_finished(f"t{number}", f"l{number}:0", "w", LEASE_MS, INTERVAL_MS, 0, [finish])

    await asyncio.gather(*[end(number) for number in range(30)])
    for queue in queues:
        await queue.close()
    assert types(await scene.queue.get_history("root")) == ["added", "waiting"]
    await check_queue(scene.queue)


async def test_a_flow_that_is_sent_again_after_its_root_came_and_went_adds_nothing(scene: Scene) -> None:
    await flow(scene, "a")
    await scene.queue.remove("root")
    await scene.scripts.add_flow("flow", [entry(scene, "root", children=1), entry(scene, "a", 1, "root")])
    assert [job for job in ("root", "a") if await scene.queue.get_job(job)] == []
