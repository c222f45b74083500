"""Flows where other features have a say: groups, limits, counters, steps, deduplication, bulks, cleaning."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator import sync
from orchestrator.active_job import ActiveJob
from orchestrator.deduplication import Deduplication
from orchestrator.errors import FlowRefused, GroupFull, InvalidOption, LayoutMismatch, QueueFull, WrongState
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.job import JobOptions, JobState
from orchestrator.parent import Parent
from orchestrator.processors import Processor, Sandbox
from orchestrator.queue import BulkJob, Queue
from orchestrator.schedule import JobTemplate, RepeatOptions
from orchestrator.scripts import Client
from orchestrator.worker import Worker
from tests.dump import dump
from tests.invariants import check_queue
from tests.lua.scenarios.flows import child, claim, flow
from tests.lua.scenarios.table import ERROR
from tests.lua.scene import Scene, types
from tests.lua.scheduling import pass_slots
from tests.orchestrator import sandboxed
from tests.orchestrator.running import ended, until_active

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

EVERY = RepeatOptions(every_ms=60_000)


@pytest.fixture
async def pair(client: Client, queue_name: str) -> AsyncIterator[tuple[Scene, Scene]]:
    """Two queues of one tag: that of the parents, that of the children."""
    scenes = [Scene(Queue(f"{{{queue_name}}}{side}", client)) for side in ("above", "below")]
    yield scenes[0], scenes[1]
    for scene in scenes:
        await check_queue(scene.queue)


async def states(scene: Scene, *job_ids: str) -> list[str]:
    found = [await scene.queue.get_job(job_id) for job_id in job_ids]
    return ["gone" if job is None else str(job.state) for job in found]


async def family(pair: tuple[Scene, Scene], *children: str, root: dict[str, Any] | None = None, **opts: Any) -> None:
    """A root above, children below."""
    above, below = pair
    jobs = [FlowJob("page", below.queue.name, None, JobOptions(id=name, **opts)) for name in children]
    await FlowProducer(above.client).add(
        FlowJob("book", above.queue.name, None, JobOptions(id="root", **(root or {})), jobs)
    )


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_released_parent_takes_its_turn_in_its_group(pair: tuple[Scene, Scene]) -> None:
    above, below = pair
    await family(pair, "a", "b", root={"group": "g", "batch_key": "k"}, group="h")
    await above.add("other", group="g")
    for _ in range(2):
        await below.finish(await claim(below))
        await check_queue(above.queue)
    assert await states(above, "root") == ["waiting"]
    assert [(await claim(above)).job.id for _ in range(2)] == ["root", "other"], "it was there first"


async def test_a_parent_that_waits_in_its_group_leaves_it_for_a_child_that_is_added(scene: Scene) -> None:
    await scene.add("root", group="g", batch_key="k")
    await child(scene, "a", group="g")
    assert await states(scene, "root", "a") == ["waiting-children", "waiting"]
    await check_queue(scene.queue)
    assert (await claim(scene)).job.id == "a"


async def test_a_group_that_has_no_room_for_all_of_a_flow_takes_none_of_it(pair: tuple[Scene, Scene]) -> None:
    above, below = pair
    await below.queue.set_group_max_waiting("g", 2)
    await family(pair, "a", "b", group="g")
    await below.queue.remove("a")
    with pytest.raises(GroupFull):
        await FlowProducer(above.client).add(
            FlowJob(
                "book",
                above.queue.name,
                None,
                JobOptions(id="second"),
                [FlowJob("page", below.queue.name, None, JobOptions(group="g")) for _ in range(2)],
            )
        )
    assert await states(above, "second") == ["gone"]
    assert (await below.queue.get_counts())["waiting"] == 1


# ── limits on what waits ─────────────────────────────────────────────────────────────────────────────


async def test_max_waiting_counts_parents_and_refuses_a_flow_whole(pair: tuple[Scene, Scene]) -> None:
    above, below = pair
    await below.queue.set_max_waiting(2)
    with pytest.raises(QueueFull, match="max_waiting"):
        await family(pair, "a", "b", "c")
    assert await dump(above.client, f"{above.prefix}state:") == {}
    await family(pair, "a", "b")
    await above.queue.set_max_waiting(1)
    with pytest.raises(QueueFull, match="max_waiting"):
        await above.queue.add("book")
    for _ in range(2):
        await below.finish(await claim(below))
    assert await states(above, "root") == ["waiting"]
    repeated = await FlowProducer(above.client).add(FlowJob("book", above.queue.name, None, JobOptions(id="root")))
    assert repeated.job.duplicated, "who asks again is answered, also by a full queue"


async def test_a_queue_that_is_being_obliterated_takes_no_flow(pair: tuple[Scene, Scene]) -> None:
    above, below = pair
    await below.add("a")
    epoch = (await below.meta())["epoch"]
    assert await below.scripts.obliterate(epoch, force=False, limit=10, closing_ms=60_000) == 1
    with pytest.raises(QueueFull, match="obliterated"):
        await family(pair, "a")
    assert await states(above, "root") == ["gone"]
    await below.change_meta(closing_until=None)


async def test_slots_of_schedules_wait_for_a_place_among_max_waiting(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("s", EVERY)
    await claim(scene)
    await scene.queue.set_max_waiting(1)
    await scene.add("a")
    (slot,) = await pass_slots(scene, "s", 1)
    assert await scene.scripts.move_due_jobs(10) == 0
    assert await states(scene, f"s:{slot}") == ["gone"]
    await scene.queue.remove("a")
    await scene.change_meta(schedule_at=slot)
    assert await scene.scripts.move_due_jobs(10) == 1
    assert await states(scene, f"s:{slot}") == ["waiting"]
    await check_queue(scene.queue)


# ── counters ─────────────────────────────────────────────────────────────────────────────────────────


async def test_each_queue_counts_what_happens_in_it(pair: tuple[Scene, Scene]) -> None:
    _, below = pair
    await family(pair, "a")
    await below.finish(await claim(below), "failed", ERROR)
    totals = [(await scene.queue.get_stats()).totals for scene in pair]
    assert [(each.get("added"), each.get("failed"), each.get("started") or None) for each in totals] == [
        (1, 1, None),
        (1, 1, 1),
    ]


async def test_a_queue_that_does_not_count_is_left_alone(pair: tuple[Scene, Scene]) -> None:
    above, below = pair
    await above.change_meta(metrics="off")
    await family(pair, "a")
    await below.finish(await claim(below), "failed", ERROR)
    totals = [(await scene.queue.get_stats()).totals for scene in pair]
    assert totals[0] == {}
    assert totals[1]["failed"] == 1


async def test_a_parent_in_a_queue_of_another_layout_is_left_alone(pair: tuple[Scene, Scene]) -> None:
    above, below = pair
    await family(pair, "a")
    layout = (await above.meta())["layout"]
    await above.change_meta(layout="9.0")
    before = await dump(above.client, above.prefix)
    with pytest.raises(LayoutMismatch):
        await below.queue.add("page", None, JobOptions(parent=Parent(above.queue.name, "root")))
    assert await below.finish(await claim(below)) == "completed"
    assert await dump(above.client, above.prefix) == before
    await above.change_meta(layout=layout)
    assert await states(above, "root") == ["waiting-children"]
    assert await below.queue.remove_child_dependency("a")
    assert await states(above, "root") == ["waiting"]


# ── steps ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outcome", ["waiting", "delayed", "rate_limited", "returned", "waiting-children"])
async def test_every_step_of_a_parent_waits_for_children_that_are_pending(scene: Scene, outcome: str) -> None:
    root = await scene.active("root")
    await child(scene, "a")
    assert await scene.finish(root, outcome, b"{}", 50_000) == "waiting-children"
    await check_queue(scene.queue)
    await scene.change_meta(limited_until=None)
    await scene.finish(await claim(scene))
    assert await states(scene, "root") == ["delayed" if outcome == "delayed" else "waiting"]
    found = await scene.queue.get_job("root")
    assert found is not None
    assert found.attempts_made == 0
    await check_queue(scene.queue)


@pytest.mark.parametrize(
    "outcome", ["completed", "failed", "waiting", "delayed", "rate_limited", "returned", "waiting-children"]
)
async def test_a_running_parent_whose_child_failed_it_fails_whatever_its_attempt_says(
    scene: Scene, outcome: str
) -> None:
    root = await scene.active("root", attempts=5)
    await child(scene, "a")
    await scene.finish(await claim(scene), "failed", ERROR)
    assert await scene.finish(root, outcome, ERROR, 1000) == "failed"
    found = await scene.queue.get_job("root")
    assert found is not None
    assert (found.reason, found.stack) == ("child", None)
    is_limited = "limited_until" in await scene.meta()
    assert is_limited == (outcome == "rate_limited"), "that is so for the others, too"
    await check_queue(scene.queue)


@pytest.mark.parametrize("outcome", ["delayed", "waiting-children", "completed", "canceled"])
async def test_a_cancellation_comes_before_a_failed_child(scene: Scene, outcome: str) -> None:
    root = await scene.active("root")
    await child(scene, "a")
    await scene.finish(await claim(scene), "failed", ERROR)
    await scene.queue.cancel("root")
    assert await scene.finish(root, outcome, b"{}", 1000) == "canceled"
    await check_queue(scene.queue)


# ── deduplication ────────────────────────────────────────────────────────────────────────────────────


async def test_a_parent_that_fails_with_its_child_gives_its_key_free_in_its_own_queue(
    pair: tuple[Scene, Scene],
) -> None:
    above, below = pair
    once = Deduplication("k", keep_last_if_active=True)
    root = await above.active("root", deduplication=once, attempts=3)
    await above.queue.add("book", 2, JobOptions(id="kept", deduplication=once))
    await below.add("a", parent=Parent(above.queue.name, "root"))
    assert await above.finish(root, "waiting-children", b"{}") == "waiting-children"
    await below.finish(await claim(below), "failed", ERROR)
    assert await states(above, "root", "kept") == ["failed", "waiting"]
    assert await above.queue.get_deduplication_job_id("k") == "kept"
    assert await states(below, "kept") == ["gone"]
    assert (await above.queue.get_stats()).totals["added"] == 2


async def test_deduplication_goes_neither_with_a_parent_nor_with_a_flow(scene: Scene) -> None:
    once = Deduplication("k")
    parent = Parent(scene.queue.name, "root")
    for refused in (
        scene.queue.add("paint", None, JobOptions(deduplication=once, parent=parent)),
        scene.queue.add_bulk([BulkJob("paint", None, JobOptions(deduplication=once, parent=parent))]),
    ):
        with pytest.raises(InvalidOption, match="deduplication"):
            await refused
    flows = FlowProducer(scene.client)
    for node in (
        FlowJob("paint", scene.queue.name, None, JobOptions(deduplication=once)),
        FlowJob(
            "paint", scene.queue.name, None, None, [FlowJob("p", scene.queue.name, 1, JobOptions(deduplication=once))]
        ),
    ):
        with pytest.raises(InvalidOption, match="deduplication"):
            await flows.add(node)
    assert await dump(scene.client, scene.prefix) == {}


# ── other ways to add ────────────────────────────────────────────────────────────────────────────────


async def test_a_bulk_may_bring_children(pair: tuple[Scene, Scene]) -> None:
    above, below = pair
    root = await above.active("root")
    parent = JobOptions(parent=Parent(above.queue.name, "root"))
    made = await below.queue.add_bulk([BulkJob("page", number, parent) for number in range(3)])
    assert not any(each.duplicated for each in made)
    assert await above.queue.get_dependencies_count("root") == (3, 0, 0, 0)
    assert await above.finish(root, "waiting-children", b"{}") == "waiting-children"
    for _ in range(3):
        await below.finish(await claim(below))
    assert await states(above, "root") == ["waiting"]


async def test_a_bulk_with_a_child_that_its_parent_cannot_take_stores_nothing(pair: tuple[Scene, Scene]) -> None:
    above, below = pair
    await above.active("root")
    await below.add("there")
    good, bad = (JobOptions(parent=Parent(above.queue.name, name)) for name in ("root", "nobody"))
    taken = JobOptions(id="there", parent=Parent(above.queue.name, "root"))
    for wrong in (bad, taken):
        with pytest.raises(FlowRefused):
            await below.queue.add_bulk([BulkJob("page", 1, good), BulkJob("page", 2, wrong)])
    fields = {f"{below.queue.name}:x{number}": "c1" for number in range(4998)}
    await above.client.hset(f"{above.prefix}children:root", mapping=fields)
    with pytest.raises(FlowRefused, match="5000"):
        await below.queue.add_bulk([BulkJob("page", number, good) for number in range(3)])
    await above.client.delete(f"{above.prefix}children:root")
    assert (await below.queue.get_counts())["waiting"] == 1


async def test_what_is_owed_and_what_a_schedule_makes_have_no_parent(scene: Scene) -> None:
    options = JobOptions(parent=Parent(scene.queue.name, "root"))
    with pytest.raises(InvalidOption, match="parent"):
        await scene.queue.fan_out("tell", None, options)
    with pytest.raises(InvalidOption, match="parent"):
        await scene.queue.upsert_job_scheduler("s", EVERY, JobTemplate("paint", None, options))
    assert await dump(scene.client, scene.prefix) == {}


def test_flows_can_be_added_without_async(url: str, queue_name: str) -> None:
    with sync.FlowProducer(url) as flows, sync.Queue(queue_name, url) as queue:
        tree = flows.add(FlowJob("book", queue_name, None, None, [FlowJob("page", queue_name)]))
        assert queue.get_flow(tree.job.id) == tree


# ── many at once ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", ["drain", "clean"])
async def test_children_that_are_drained_or_cleaned_let_their_parent_go(pair: tuple[Scene, Scene], way: str) -> None:
    above, below = pair
    await family(pair, "a", "b", "c")
    if way == "drain":
        await below.queue.drain()
    else:
        await below.queue.clean(0, 100, "waiting")
    assert await states(above, "root") == ["waiting"]
    assert types(await above.queue.get_history("root")) == ["added", "waiting"]


async def test_an_obliterated_queue_leaves_no_parent_waiting(pair: tuple[Scene, Scene]) -> None:
    above, below = pair
    await family(pair, "a", "b")
    await claim(below)
    with pytest.raises(WrongState):
        await below.queue.obliterate()
    await below.queue.obliterate(force=True)
    assert await dump(below.client, below.prefix) == {}
    assert await states(above, "root") == ["waiting"]


async def test_an_obliterated_queue_forgets_its_parents_and_their_children_run_on(pair: tuple[Scene, Scene]) -> None:
    above, below = pair
    await family(pair, "a", "b")
    await above.queue.obliterate()
    assert await dump(above.client, above.prefix) == {}
    await below.finish(await claim(below), "failed", ERROR)
    await below.finish(await claim(below))
    assert await dump(above.client, above.prefix) == {}


@pytest.mark.parametrize("root", ["root", "0"])
async def test_a_failed_family_that_is_retried_at_once_goes_the_same_way_again(scene: Scene, root: str) -> None:
    flows = FlowProducer(scene.client)
    queue = scene.queue.name
    await flows.add(
        FlowJob(
            "book",
            queue,
            None,
            JobOptions(id=root),
            [FlowJob("part", queue, None, JobOptions(id="1"), [FlowJob("page", queue, None, JobOptions(id="2"))])],
        )
    )
    await scene.finish(await claim(scene), "failed", ERROR)
    assert await states(scene, root, "1", "2") == ["failed"] * 3
    assert await scene.queue.retry_jobs() == 3
    assert await states(scene, root, "1", "2") == ["waiting-children", "waiting-children", "waiting"]
    await check_queue(scene.queue)
    order = []
    for _ in range(3):
        claimed = await claim(scene)
        order.append(claimed.job.id)
        await scene.finish(claimed)
    assert order == ["2", "1", root]


async def test_canceling_a_flow_answers_the_parent_as_it_left_it(scene: Scene) -> None:
    await flow(scene, "a", "b")
    canceled = await scene.scripts.cancel_job("t", "root", b'{"by":"","reason":""}')
    assert (canceled.state, canceled.pending_children) == ("canceled", 0)
    assert await scene.scripts.cancel_job("t", "root", b'{"by":"","reason":""}') == canceled


# ── workers of every kind ────────────────────────────────────────────────────────────────────────────


async def gathers(job: ActiveJob) -> Any:
    if job.name == "page":
        return job.data
    while not any(await job.get_dependencies_count()):
        await asyncio.sleep(0.01)
    await job.wait_for_children()
    return sorted((await job.get_children_values()).values())


@pytest.mark.parametrize("process", [gathers, sandboxed.gathers, Sandbox("tests.orchestrator.sandboxed:gathers")])
async def test_a_processor_of_any_kind_waits_for_children_that_come_while_it_runs(
    queue: Queue, url: str, process: Processor
) -> None:
    book = await queue.add("book", None, JobOptions(attempts=1))
    heard: list[str] = []
    async with Worker(queue.name, process, url) as worker:
        worker.on("waiting-children", lambda event: heard.append(event.what))
        await until_active(queue)
        parent = JobOptions(parent=Parent(queue.name, book.id))
        await queue.add_bulk([BulkJob("page", number, parent) for number in range(3)])
        (done,) = await ended(queue, book.id)
    assert done.result_as(list[int]) == [0, 1, 2]
    assert heard == ["waiting-children"]
    await check_queue(queue)


async def test_a_claim_by_hand_may_wait_for_children(queue: Queue, url: str) -> None:
    book = await queue.add("book")
    async with Worker(queue.name, None, url) as worker:
        held = await worker.get_next_job(10)
        assert held is not None
        page = await queue.add("page", None, JobOptions(parent=Parent(queue.name, book.id)))
        assert await held.move_to_waiting_children() is JobState.WAITING_CHILDREN
        assert "children" in (await queue.why_waiting(book.id)).held_by
        child = await worker.get_next_job(10)
        assert child is not None
        assert child.id == page.id
        await child.move_to_completed()
        again = await worker.get_next_job(10)
        assert again is not None
        assert (again.id, again.attempts_made) == (book.id, 0)
        assert await again.move_to_waiting_children() is JobState.WAITING, "none is pending any more"
