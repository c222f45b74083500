"""Canceling, removing and retrying in flows: what it means to those above and below."""

import asyncio

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.duties import DueJobsPromoter
from orchestrator.errors import FlowRefused, JobCanceled, JobNotFound, WrongState
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.job import CancelRequest, JobOptions
from orchestrator.parent import Parent
from orchestrator.queue import Queue
from orchestrator.worker import Worker
from tests.dump import dump
from tests.invariants import check_queue
from tests.lua.scenarios.flows import child, claim, deep, entry, flow
from tests.lua.scenarios.table import CANCEL, ERROR
from tests.lua.scene import Scene, types
from tests.orchestrator.running import ended, until_active

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def states(scene: Scene, *job_ids: str) -> list[str]:
    found = [await scene.queue.get_job(job_id) for job_id in job_ids]
    return ["gone" if job is None else str(job.state) for job in found]


async def counts(scene: Scene) -> dict[str, int]:
    """How many jobs are in the states in which there are any."""
    return {state: count for state, count in (await scene.queue.get_counts()).items() if count}


async def big(scene: Scene, size: int) -> None:
    """A running parent with so many children, added at run time."""
    await scene.active("root")
    await grow(scene, size)


async def grow(scene: Scene, size: int) -> None:
    for start in range(0, size, 400):
        entries = [entry(scene, f"c{n}", above="root") for n in range(start, min(start + 400, size))]
        await scene.scripts.add_flow(f"t{start}", entries)


# ── cancel ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_flow_is_canceled_with_all_below_it(scene: Scene) -> None:
    await scene.scripts.add_flow("flow", deep(scene))
    running = await claim(scene)
    assert (await scene.queue.cancel("root", "me", "enough")).state == "canceled"
    assert await states(scene, "root", "a", "b", "aa") == ["canceled", "canceled", "canceled", "active"]
    asked = await scene.queue.get_job("aa")
    assert asked is not None
    assert asked.cancel is not None
    assert (asked.cancel.by, asked.cancel.reason) == ("me", "enough")
    await check_queue(scene.queue)
    assert await scene.finish(running, "failed", ERROR) == "canceled"
    for job_id in ("root", "a", "b"):
        assert types(await scene.queue.get_history(job_id)) == ["added", "canceled"]
    await check_queue(scene.queue)


async def test_a_parent_may_be_canceled_alone(scene: Scene) -> None:
    await flow(scene, "a", "b")
    await scene.queue.cancel("root", cancel_children=False)
    assert await states(scene, "root", "a", "b") == ["canceled", "waiting", "waiting"]
    assert await scene.finish(await claim(scene)) == "completed"
    assert await scene.finish(await claim(scene), "failed", ERROR) == "failed"
    assert await states(scene, "root") == ["canceled"]
    await check_queue(scene.queue)


async def test_a_finished_child_stays_as_it_ended_when_its_flow_is_canceled(scene: Scene) -> None:
    await flow(scene, "a", "b")
    await scene.finish(await claim(scene))
    await scene.queue.cancel("root")
    assert await states(scene, "root", "a", "b") == ["canceled", "completed", "canceled"]
    await check_queue(scene.queue)


async def test_what_runs_in_a_canceled_flow_is_told_to_stop(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        await job.cancel_requested.wait()
        raise JobCanceled("stopped", step=3)

    async with FlowProducer(url) as flows, Worker(queue.name, process, url):
        tree = await flows.add(FlowJob("root", queue.name, children=[FlowJob("a", queue.name)]))
        await until_active(queue)
        await queue.cancel(tree.job.id)
        jobs = await ended(queue, tree.job.id, tree.children[0].job.id)
    assert [job.state for job in jobs] == ["canceled", "canceled"]
    await check_queue(queue)


async def test_a_family_of_any_size_is_canceled_in_steps(scene: Scene) -> None:
    await big(scene, 1201)
    await child(scene, "below", "c700")
    running = await claim(scene)
    assert (await scene.queue.cancel("root", "me", "enough")).state == "active"
    assert await counts(scene) == {"active": 2, "canceled": 1201}
    assert (await scene.queue.get_dependencies_count("root")).unprocessed == 1
    below = await scene.queue.get_job("below")
    assert below is not None
    assert below.cancel == CancelRequest("me", "enough")
    assert types(await scene.queue.get_history(running.job.id))[-1] == "canceling"
    await check_queue(scene.queue)
    assert not await scene.client.exists(f"{scene.prefix}untold")


async def test_a_family_whose_canceler_died_is_told_by_the_duty(scene: Scene) -> None:
    entries = [entry(scene, "root", children=120, remove_on_fail=True)]
    entries += [entry(scene, f"c{number}", 1, "root", remove_on_fail=number % 2 == 0) for number in range(120)]
    await scene.scripts.add_flow("flow", entries)
    canceled = await scene.scripts.cancel_job("t", "root", CANCEL)
    assert await scene.scripts.cancel_job("t", "root", CANCEL) == canceled
    assert await states(scene, "root", "c0", "c23", "c25") == ["gone", "gone", "canceled", "waiting"]
    held = await claim(scene)
    promoter = DueJobsPromoter(scene.queue)
    steps = 0
    while await promoter.step():
        steps += 1
    assert steps == 4
    assert await counts(scene) == {"active": 1, "canceled": 59}
    assert await states(scene, held.job.id) == ["active"]
    assert types(await scene.queue.get_history(held.job.id))[-1] == "canceling"
    assert await scene.scripts.cancel_descendants("root") == 0
    await check_queue(scene.queue)


async def test_a_retry_of_a_canceled_root_ends_the_telling(scene: Scene) -> None:
    entries = [entry(scene, "root", children=40), *(entry(scene, f"c{number}", 1, "root") for number in range(40))]
    await scene.scripts.add_flow("flow", entries)
    await scene.scripts.cancel_job("t", "root", CANCEL)
    assert await counts(scene) == {"waiting": 15, "canceled": 26}
    await scene.queue.retry("root")
    assert not await scene.client.exists(f"{scene.prefix}untold", f"{scene.prefix}untold:root")
    assert await scene.scripts.cancel_descendants("root") == 0
    assert await DueJobsPromoter(scene.queue).step() is False
    assert await counts(scene) == {"waiting": 15, "waiting-children": 1, "canceled": 25}
    assert await scene.queue.cancel("root")
    assert await counts(scene) == {"canceled": 41}
    await check_queue(scene.queue)


async def test_a_flow_with_too_many_jobs_is_removed_in_parts(scene: Scene) -> None:
    await scene.add("root", delay_ms=90_000)
    await grow(scene, 501)
    before = await dump(scene.client, scene.prefix)
    with pytest.raises(FlowRefused, match="job root has more than 500 jobs below it"):
        await scene.queue.remove("root")
    assert await dump(scene.client, scene.prefix) == before
    assert await scene.queue.remove_unprocessed_children("root") == 501
    assert await scene.queue.get_dependencies_count("root") == (0, 0, 0, 0)
    assert await states(scene, "root") == ["delayed"]
    await check_queue(scene.queue)


async def test_an_id_that_is_used_again_elsewhere_is_not_canceled_with_its_former_parent(scene: Scene) -> None:
    await flow(scene, "a", "b", remove_on_complete=True)
    assert await scene.finish(await claim(scene)) == "completed"
    await scene.add("other", delay_ms=60_000)
    await child(scene, "a", "other")
    await scene.queue.cancel("root")
    assert await states(scene, "root", "a", "b", "other") == ["canceled", "waiting", "canceled", "waiting-children"]
    await check_queue(scene.queue)


# ── remove ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_flow_is_removed_with_all_below_it(scene: Scene) -> None:
    await scene.scripts.add_flow("flow", deep(scene))
    await scene.finish(await claim(scene))
    assert await states(scene, "root", "a", "b", "aa") == ["waiting-children", "waiting", "delayed", "completed"]
    assert await scene.queue.remove("root")
    assert await states(scene, "root", "a", "b", "aa") == ["gone"] * 4
    left = await check_queue(scene.queue)
    assert {key.partition(":")[0] for key in left} <= {"meta", "events", "gone", "marker", "outbox", "totals"}
    assert not await scene.queue.remove("root")


async def test_nothing_is_removed_while_a_job_below_runs(scene: Scene) -> None:
    await scene.scripts.add_flow("flow", deep(scene))
    running = await claim(scene)
    before = await dump(scene.client, scene.prefix)
    for job_id in ("root", "a"):
        with pytest.raises(WrongState, match="job aa is active"):
            await scene.queue.remove(job_id)
    assert await dump(scene.client, scene.prefix) == before
    await scene.finish(running)
    assert await scene.queue.remove("root")


async def test_a_parent_may_be_removed_alone(scene: Scene) -> None:
    await flow(scene, "a")
    assert await scene.queue.remove("root", remove_children=False)
    assert await states(scene, "root", "a") == ["gone", "waiting"]
    assert await scene.finish(await claim(scene), "failed", ERROR) == "failed"
    await check_queue(scene.queue)


async def test_a_subtree_that_is_removed_releases_its_parent(scene: Scene) -> None:
    await scene.scripts.add_flow(
        "flow",
        [
            entry(scene, "root", children=1, priority=6),
            entry(scene, "a", 1, "root", children=1),
            entry(scene, "aa", 2, "a"),
        ],
    )
    assert await scene.queue.remove("a")
    assert await states(scene, "root", "a", "aa") == ["waiting", "gone", "gone"]
    assert types(await scene.queue.get_history("root")) == ["added", "waiting"]
    await check_queue(scene.queue)
    assert (await claim(scene)).job.priority == 6


async def test_a_result_outlives_the_child_that_is_removed(scene: Scene) -> None:
    await flow(scene, "a", "b")
    await scene.finish(await claim(scene))
    assert await scene.queue.remove("a")
    assert await scene.queue.get_dependencies_count("root") == (1, 1, 0, 0)
    assert await scene.queue.get_children_values("root") == {f"{scene.queue.name}:a": 1}
    await check_queue(scene.queue)


async def test_an_id_that_is_used_again_elsewhere_is_not_removed_with_its_former_parent(scene: Scene) -> None:
    await flow(scene, "a", "b")
    await scene.finish(await claim(scene))
    await scene.queue.remove("a")
    await scene.add("a")
    await scene.queue.remove("root")
    assert await states(scene, "root", "a", "b") == ["gone", "waiting", "gone"]
    await check_queue(scene.queue)


async def test_unprocessed_children_are_removed_unless_something_in_them_runs(scene: Scene) -> None:
    root = await scene.active("root")
    await child(scene, "done")
    await scene.finish(await claim(scene))
    await child(scene, "runs")
    await claim(scene)
    await child(scene, "above", delay_ms=9000)
    await child(scene, "below", "above")
    await claim(scene)
    await child(scene, "waits", priority=3)
    await child(scene, "tree", delay_ms=9000)
    await child(scene, "leaf", "tree")
    assert await scene.queue.remove_unprocessed_children("root") == 2
    assert await states(scene, "done", "runs", "above", "below") == [
        "completed", "active", "waiting-children", "active",
    ]  # fmt: skip
    assert await states(scene, "waits", "tree", "leaf") == ["gone", "gone", "gone"]
    assert await scene.queue.get_dependencies_count("root") == (2, 1, 0, 0)
    assert await scene.queue.remove_unprocessed_children("root") == 0
    assert await scene.finish(root, "waiting-children") == "waiting-children"
    await check_queue(scene.queue)
    with pytest.raises(JobNotFound):
        await scene.queue.remove_unprocessed_children("nobody")


async def test_a_processor_that_was_let_go_on_removes_what_it_needs_no_more(queue: Queue, url: str) -> None:
    blocked = asyncio.Event()

    async def process(job: ActiveJob) -> object:
        if job.name == "bad":
            raise ValueError
        if job.name == "slow":
            await blocked.wait()
        return await job.remove_unprocessed_children() if job.name == "root" else None

    bad = FlowJob("bad", queue.name, opts=JobOptions(on_failure="continue_parent"))
    others = [FlowJob("late", queue.name, opts=JobOptions(delay_ms=60_000)) for _ in range(3)]
    async with FlowProducer(url) as flows, Worker(queue.name, process, url, concurrency=3):
        slow = FlowJob("slow", queue.name)
        tree = await flows.add(FlowJob("root", queue.name, children=[slow, bad, *others]))
        (root,) = await ended(queue, tree.job.id)
        assert (root.state, root.result_as(int)) == ("completed", 3)
        blocked.set()
        await ended(queue, tree.children[0].job.id)
    await check_queue(queue)


async def test_a_dependency_is_removed_and_the_child_goes_on(scene: Scene) -> None:
    await flow(scene, "a", "b")
    assert await scene.queue.remove_child_dependency("a")
    assert await states(scene, "root", "a") == ["waiting-children", "waiting"]
    assert not await scene.queue.remove_child_dependency("a")
    assert await scene.queue.remove_child_dependency("b")
    assert await states(scene, "root") == ["waiting"]
    await check_queue(scene.queue)
    assert (await claim(scene)).job.id == "root"
    assert await scene.finish(await claim(scene), "failed", ERROR) == "failed"
    assert await scene.queue.get_dependencies_count("root") == (0, 0, 0, 0)
    await scene.queue.retry("a")
    assert await scene.queue.get_dependencies_count("root") == (0, 0, 0, 0)
    with pytest.raises(JobNotFound):
        await scene.queue.remove_child_dependency("nobody")
    await check_queue(scene.queue)


# ── retry, priority, promote ─────────────────────────────────────────────────────────────────────────


async def test_a_parent_that_waits_still_waits_again_for_a_child_that_is_retried(scene: Scene) -> None:
    await flow(scene, "a", "b", on_failure="ignore")
    await scene.finish(await claim(scene), "failed", ERROR)
    assert await scene.queue.get_dependencies_count("root") == (1, 0, 0, 1)
    await scene.queue.retry("a")
    assert await scene.queue.get_dependencies_count("root") == (2, 0, 0, 0)
    await check_queue(scene.queue)
    await scene.finish(await claim(scene))
    assert await states(scene, "root") == ["waiting-children"]
    await scene.finish(await claim(scene))
    assert await scene.queue.get_dependencies_count("root") == (0, 2, 0, 0)
    assert await states(scene, "root") == ["waiting"]
    await check_queue(scene.queue)


@pytest.mark.parametrize("order", [("a", "root"), ("root", "a")])
async def test_a_failed_flow_is_retried_by_its_failed_child_and_its_root(scene: Scene, order: tuple[str, str]) -> None:
    await flow(scene, "a", "b")
    await scene.finish(await claim(scene), "failed", ERROR)
    assert await states(scene, "root", "a", "b") == ["failed", "failed", "waiting"]
    for job_id in order:
        await scene.queue.retry(job_id)
        await check_queue(scene.queue)
    history = await scene.queue.get_history("root")
    assert history[-1].fields == {"prev": "failed", "state": "waiting-children"}
    assert await scene.queue.get_dependencies_count("root") == (2, 0, 0, 0)
    for _ in range(2):
        assert await states(scene, "root") == ["waiting-children"]
        await scene.finish(await claim(scene))
    assert (await claim(scene)).job.id == "root"
    await check_queue(scene.queue)


async def test_a_child_that_is_retried_while_its_parent_runs_or_is_done_is_not_waited_for(scene: Scene) -> None:
    await flow(scene, "a", on_failure="ignore")
    await scene.finish(await claim(scene), "failed", ERROR)
    root = await claim(scene)
    await scene.queue.retry("a")
    assert await scene.queue.get_dependencies_count("root") == (0, 0, 0, 1)
    await scene.finish(await claim(scene))
    assert await scene.queue.get_dependencies_count("root") == (0, 1, 0, 0)
    assert await scene.finish(root) == "completed"
    await check_queue(scene.queue)


async def test_a_child_that_is_not_waited_for_cannot_fail_its_parent(scene: Scene) -> None:
    await flow(scene, "a")
    await scene.finish(await claim(scene))
    root = await claim(scene)
    await scene.queue.retry("a")
    await scene.finish(await claim(scene), "failed", ERROR)
    assert await scene.queue.get_dependencies_count("root") == (0, 0, 1, 0)
    assert await scene.finish(root) == "completed"
    await check_queue(scene.queue)


async def test_a_delayed_parent_that_is_retried_waits_for_its_child_but_not_for_its_delay(scene: Scene) -> None:
    await flow(scene, "a", root={"delay_ms": 60_000})
    await scene.finish(await claim(scene), "failed", ERROR)
    await scene.queue.retry("a")
    await scene.queue.retry("root")
    await scene.finish(await claim(scene))
    assert await states(scene, "root") == ["waiting"]
    await check_queue(scene.queue)


async def test_a_parent_that_waits_for_children_cannot_be_promoted(scene: Scene) -> None:
    await flow(scene, "a", root={"delay_ms": 1000})
    with pytest.raises(WrongState, match="waiting-children"):
        await scene.queue.promote("root")
    with pytest.raises(WrongState):
        await scene.queue.retry("root")


async def test_a_full_tree_can_be_added_below_a_running_job_and_fails_it(scene: Scene, url: str) -> None:
    root = await scene.active("root")
    name = scene.queue.name
    async with FlowProducer(url) as flows:
        below = FlowJob("p", name, children=[FlowJob("p", name)], opts=JobOptions(parent=Parent(name, "root")))
        await flows.add(below)
    assert await scene.finish(root, "waiting-children") == "waiting-children"
    await scene.finish(await claim(scene), "failed", ERROR)
    assert await states(scene, "root") == ["failed"]
    assert (await scene.queue.get_counts())["failed"] == 3
    await check_queue(scene.queue)
