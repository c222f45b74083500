"""Adding flows: all or nothing, in one call, in queues of one tag."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.children import JobNode
from orchestrator.errors import FlowRefused, InvalidOption, QueueFull
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.job import Job, JobOptions, JobState
from orchestrator.keys import QUEUES_KEY
from orchestrator.parent import Parent
from orchestrator.queue import Queue
from orchestrator.scripts import Client, Finish, connect
from orchestrator.scripts import flows as flow_scripts
from orchestrator.scripts.library import load
from orchestrator.worker import Worker
from tests.dump import dump
from tests.faultproxy import FaultProxy
from tests.invariants import check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene, drain
from tests.orchestrator.running import ended, run_one, types
from tests.record import change_meta
from tests.servers import Server

SERVERS = ["valkey", "redis", "valkey-cluster"]
on_all = pytest.mark.parametrize("server", SERVERS, indirect=True)


@pytest.fixture
def flows(client: Client) -> FlowProducer:
    """A producer on the test's client."""
    return FlowProducer(client)


def job(queue: str, *children: FlowJob, **options: Any) -> FlowJob:
    return FlowJob("paint", queue, {"x": 1}, JobOptions(**options) if options else None, children)


def jobs_of(tree: JobNode) -> Iterator[Job]:
    yield tree.job
    for child in tree.children:
        yield from jobs_of(child)


# ── what is stored ───────────────────────────────────────────────────────────────────────────────────


async def test_a_flow_is_stored_whole_and_told_as_it_is_stored(flows: FlowProducer, queue: Queue) -> None:
    tree = await flows.add(
        job(
            queue.name,
            job(queue.name, job(queue.name, id="aa", priority=2), id="a"),
            job(queue.name, id="b", delay_ms=50_000, on_failure="ignore"),
            id="root",
        )
    )
    assert [each.id for each in jobs_of(tree)] == ["root", "a", "aa", "b"]
    for told in jobs_of(tree):
        assert await queue.get_job(told.id) == told
    assert [each.state for each in jobs_of(tree)] == ["waiting-children", "waiting-children", "waiting", "delayed"]
    assert tree.children[0].job.parent == Parent(queue.name, "root")
    history = await queue.get_history("root")
    assert [event.fields["state"] for event in history] == ["waiting-children"]
    assert await queue.get_flow("root") == tree
    await check_queue(queue)


async def test_a_flow_of_one_job_is_an_ordinary_job(flows: FlowProducer, queue: Queue) -> None:
    tree = await flows.add(job(queue.name, delay_ms=50_000))
    assert (tree.job.state, tree.children) == ("delayed", [])
    assert await queue.get_job(tree.job.id) == tree.job
    assert await flows.add_bulk([]) == []


async def test_several_flows_are_stored_by_one_call(flows: FlowProducer, queue: Queue) -> None:
    trees = await flows.add_bulk([job(queue.name, job(queue.name), id="one"), job(queue.name, id="other")])
    assert [(tree.job.id, len(tree.children)) for tree in trees] == [("one", 1), ("other", 0)]
    assert (await queue.get_counts())["waiting"] == 2
    assert await queue.client.sismember(QUEUES_KEY, queue.name)
    await check_queue(queue)


async def test_options_may_be_given_for_all_jobs_of_a_queue(client: Client, queue: Queue) -> None:
    flows = FlowProducer(client, default_job_options={queue.name: JobOptions(attempts=4)})
    tree = await flows.add(job(queue.name, job(queue.name, priority=1)))
    assert (tree.job.header.attempts, tree.children[0].job.header.attempts) == (4, 4)


async def test_a_parent_takes_the_place_it_had_when_the_flow_was_added(flows: FlowProducer, scene: Scene) -> None:
    await scene.add("before")
    await flows.add(job(scene.queue.name, job(scene.queue.name, id="child"), id="parent"))
    await scene.add("after")
    assert await drain(scene) == ["before", "child", "parent", "after"]
    await check_queue(scene.queue)


async def test_a_parent_has_the_priority_it_has_when_its_children_are_done(flows: FlowProducer, scene: Scene) -> None:
    name = scene.queue.name
    await flows.add_bulk([job(name, job(name, id="a"), id="low", priority=9), job(name, job(name, id="b"), id="high")])
    await scene.add("middle", priority=5)
    await scene.queue.change_priority("high", 7)
    assert await drain(scene) == ["a", "b", "middle", "high", "low"]
    await check_queue(scene.queue)


async def test_a_parents_delay_begins_when_its_children_are_done(flows: FlowProducer, scene: Scene) -> None:
    await flows.add(job(scene.queue.name, job(scene.queue.name), id="parent", delay_ms=60_000))
    assert (await scene.queue.get_jobs([JobState.WAITING_CHILDREN]))[0].due_at is None
    (claim,) = (await scene.claim()).claims
    await scene.finish(claim)
    parent = await scene.queue.get_job("parent")
    assert parent is not None
    assert parent.state == "delayed"
    assert parent.due_at is not None
    assert 59_000 < parent.due_at - parent.created_at < 70_000
    await check_queue(scene.queue)
    await scene.make_due()
    assert await drain(scene) == ["parent"]
    assert await types(scene.queue, "parent") == ["added", "delayed", "waiting", "active", "completed"]


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────


def line(queue: str, length: int) -> FlowJob:
    """A chain of so many jobs."""
    flow = job(queue)
    for _ in range(length - 1):
        flow = job(queue, flow)
    return flow


def refused(queue: str) -> Iterator[tuple[str, FlowJob]]:
    yield "flows[0].children[1].data", FlowJob("p", queue, children=[job(queue), FlowJob("p", queue, math.nan)])
    yield "flows[0].children[0].priority", job(queue, job(queue, priority=-1))
    yield "flows[0].children[0].name", job(queue, FlowJob("", queue))
    yield "flows[0].children[0].queue", job(queue, job("no name"))
    yield "flows[0].children[0].queue", job(queue, job("elsewhere"))
    yield "flows[0].parent.queue", job(queue, parent=Parent("{", "a"))
    yield "flows[0].queue", job(queue, parent=Parent("elsewhere", "a"))
    yield "flows[0].children[0].opts.parent", job(queue, job(queue, parent=Parent(queue, "x")))
    yield "flows[0].children[1].opts.id", job(queue, job(queue, id="a"), job(queue, id="a"))
    yield "flows[0].on_failure", job(queue, on_failure="ignore")
    yield "flows[0].children[0].on_failure", job(queue, job(queue, on_failure="panic"))
    yield "flows[0].children[0].flow", FlowJob("p", queue, children=["paint"])  # type: ignore[list-item]
    yield "flows[0].children", FlowJob("p", queue, children=7)  # type: ignore[arg-type]
    yield "flows[0].children[499].children", job(queue, *[job(queue)] * 500)
    yield "flows[0]" + ".children[0]" * 20 + ".children", line(queue, 21)
    yield "flows[0].children[32].data", job(queue, *[FlowJob("p", queue, "x" * 510_000)] * 40)


async def test_what_cannot_be_right_is_refused_with_its_place_and_nothing_is_sent(
    flows: FlowProducer, queue: Queue
) -> None:
    for field, flow in refused(queue.name):
        with pytest.raises(InvalidOption) as problem:
            await flows.add(flow)
        assert problem.value.field == field
    cycle: list[FlowJob] = []
    cycle.append(FlowJob("p", queue.name, children=cycle))
    with pytest.raises(InvalidOption, match="level 21"):
        await flows.add(cycle[0])
    assert await dump(queue.client, queue.keys.prefix) == {}


async def test_five_hundred_jobs_and_twenty_levels_are_taken(flows: FlowProducer, queue: Queue) -> None:
    tree = await flows.add(job(queue.name, *[job(queue.name)] * 480, line(queue.name, 19)))
    assert len(list(jobs_of(tree))) == 500
    counts = await queue.get_counts()
    assert (counts["waiting"], counts["waiting-children"]) == (481, 19)
    await check_queue(queue)


async def test_one_id_that_is_taken_refuses_all_flows_of_the_call(flows: FlowProducer, scene: Scene) -> None:
    await scene.add("taken")
    before = await dump(scene.client, scene.prefix)
    name = scene.queue.name
    with pytest.raises(FlowRefused, match=r"job taken of queue .* is there already"):
        await flows.add_bulk([job(name, job(name)), job(name, job(name), job(name, id="taken"))])
    assert await dump(scene.client, scene.prefix) == before


async def test_a_full_outbox_refuses_a_flow(flows: FlowProducer, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.add("a", notify=("added",))
    monkeypatch.setattr(flow_scripts, "OUTBOX_MAX", 1)
    with pytest.raises(QueueFull, match="1 undelivered"):
        await flows.add(job(scene.queue.name, job(scene.queue.name)))
    assert (await scene.queue.get_counts())["waiting"] == 1


async def test_a_flow_below_a_job_is_refused_when_that_cannot_wait_for_it(flows: FlowProducer, scene: Scene) -> None:
    await scene.completed("done")
    for parent, reason in (("done", "is completed"), ("nobody", "there is no job nobody")):
        with pytest.raises(FlowRefused, match=reason):
            await flows.add(job(scene.queue.name, parent=Parent(scene.queue.name, parent)))
    deep = await flows.add(line(scene.queue.name, 12))
    (bottom,) = [each for each in jobs_of(deep) if each.state == "waiting"]
    with pytest.raises(FlowRefused, match="at most 20 levels"):
        await flows.add(job(scene.queue.name, line(scene.queue.name, 8), parent=Parent(scene.queue.name, bottom.id)))
    await flows.add(job(scene.queue.name, line(scene.queue.name, 7), parent=Parent(scene.queue.name, bottom.id)))
    await check_queue(scene.queue)


# ── again ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_flow_whose_root_is_there_is_left_as_it_is(flows: FlowProducer, queue: Queue) -> None:
    first = await flows.add(job(queue.name, job(queue.name, id="a"), job(queue.name, id="b"), id="root"))
    again = await flows.add(job(queue.name, job(queue.name, id="c"), id="root"))
    assert again.job.duplicated
    assert again.job == first.job.replace(duplicated=True)
    assert again.children == first.children
    assert await queue.get_job("c") is None
    await check_queue(queue)


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
async def test_a_flow_whose_answer_was_lost_is_stored_once(queue: Queue, server: Server, runtime_folder: Path) -> None:
    await load(queue.client)
    await queue.client.sadd(QUEUES_KEY, queue.name)
    async with FaultProxy(runtime_folder / f"p-{server.kind}", server.socket) as proxy:
        client = connect(proxy.url, timeout_s=0.2)
        flows = FlowProducer(client)
        await flows._register(flows._scripts(queue.name), {queue.name})
        proxy.lose_reply("swallow")
        tree = await flows.add(job(queue.name, job(queue.name, id="a"), job(queue.name, id="b")))
        assert proxy.lost == 1
        await client.aclose()
    assert not tree.job.duplicated
    assert await queue.get_flow(tree.job.id) == tree
    counts = await queue.get_counts()
    assert (counts["waiting"], counts["waiting-children"]) == (2, 1)
    await check_queue(queue)


# ── two queues ───────────────────────────────────────────────────────────────────────────────────────


@on_all
async def test_a_flow_over_queues_of_one_tag_runs_to_its_end(flows: FlowProducer, queue_name: str, url: str) -> None:
    paint, print_ = f"{{{queue_name}}}paint", f"{{{queue_name}}}print"

    async def process(job: ActiveJob) -> object:
        return {"job": job.id, "values": await job.get_children_values()}

    async with contextlib.AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(Queue(name, url)) for name in (paint, print_, queue_name)]
        for name in (paint, print_, queue_name):
            await stack.enter_async_context(Worker(name, process, url))
        tree = await flows.add(
            job(print_, job(paint, job(print_, id="cover"), id="page"), job(queue_name, id="other"), id="book")
        )
        (book,) = await ended(queues[1], "book")
        assert book.state == "completed"
        cover = {f"{print_}:cover": {"job": "cover", "values": {}}}
        assert book.result_as(dict) == {
            "job": "book",
            "values": {
                f"{paint}:page": {"job": "page", "values": cover},
                f"{queue_name}:other": {"job": "other", "values": {}},
            },
        }
        read = await flows.get_flow(print_, "book")
        assert read is not None
        assert {(each.queue, each.id) for each in jobs_of(read)} == {(each.queue, each.id) for each in jobs_of(tree)}
        for queue in queues:
            await check_queue(queue)


@on_all
async def test_a_failure_goes_up_through_queues_of_one_tag(
    client: Client, flows: FlowProducer, queue_name: str
) -> None:
    one, other = Scene(Queue(f"{{{queue_name}}}one", client)), Scene(Queue(f"{{{queue_name}}}other", client))
    await flows.add(job(one.queue.name, job(other.queue.name, job(one.queue.name, id="c"), id="b"), id="a"))
    assert (await other.queue.get_counts())["waiting-children"] == 1
    (claim,) = (await one.claim()).claims
    await one.finish(claim, "failed", b'{"kind":"poison","message":"oh","details":{}}')
    for scene, job_id in ((one, "a"), (other, "b")):
        found = await scene.queue.get_job(job_id)
        assert found is not None
        assert found.error is not None
        assert (found.state, found.reason) == ("failed", "child")
        assert found.error.details == {"queue": one.queue.name, "job": "c"}
        await check_queue(scene.queue)
    assert await one.queue.remove("a")
    for scene in (one, other):
        assert [name for name in await dump(client, scene.prefix) if name.startswith(("job:", "children:"))] == []
        await check_queue(scene.queue)


@on_all
@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_an_end_that_is_told_twice_changes_the_parents_queue_once(
    client: Client, flows: FlowProducer, queue_name: str, outcome: str
) -> None:
    parents, children = Queue(f"{{{queue_name}}}one", client), Scene(Queue(f"{{{queue_name}}}other", client))
    await flows.add(job(parents.name, job(children.queue.name), job(children.queue.name)))
    (claim,) = (await children.claim()).claims
    end = Finish(claim.job.id, claim.lease, outcome, b'{"kind":"poison","message":"","details":{}}')
    call = ("1-t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 0, [end])
    first = await children.scripts.move_to_finished(*call)
    once = await dump(client, parents.keys.prefix)
    assert await children.scripts.move_to_finished(*call) == first
    assert await dump(client, parents.keys.prefix) == once
    await check_queue(parents)


@on_all
@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_a_worker_goes_on_in_its_own_queue_after_an_end_that_changed_another(
    client: Client, flows: FlowProducer, queue_name: str, outcome: str
) -> None:
    parents, children = Queue(f"{{{queue_name}}}one", client), Scene(Queue(f"{{{queue_name}}}other", client))
    await flows.add(job(parents.name, job(parents.name, job(children.queue.name))))
    await parents.add("paint", None, JobOptions(id="theirs"))
    await children.add("mine")
    (claim,) = (await children.claim()).claims
    end = Finish(claim.job.id, claim.lease, outcome, b'{"kind":"poison","message":"","details":{}}')
    claims = await children.scripts.move_to_finished("1-t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 1, [end])
    assert claims.outcomes == [outcome]
    assert [each.job.id for each in claims.claims] == ["mine"]
    assert (await parents.get_counts())["waiting"] == (2 if outcome == "completed" else 1)
    for queue in (parents, children.queue):
        await check_queue(queue)


@on_all
async def test_a_flow_wakes_the_workers_of_every_queue_in_which_something_can_start(
    client: Client, flows: FlowProducer, queue_name: str
) -> None:
    root, *queues = [Queue(f"{{{queue_name}}}{name}", client) for name in ("root", "one", "other")]
    await flows.add(job(root.name, *[job(queue.name) for queue in queues]))
    assert [await client.exists(queue.keys.marker) for queue in (root, *queues)] == [0, 1, 1]


@on_all
async def test_a_released_parent_wakes_the_workers_of_its_own_queue(
    client: Client, flows: FlowProducer, queue_name: str
) -> None:
    parents, children = Queue(f"{{{queue_name}}}one", client), Scene(Queue(f"{{{queue_name}}}other", client))
    await flows.add_bulk([job(parents.name, job(children.queue.name)) for _ in range(2)])
    assert not await client.exists(parents.keys.marker), "nothing can start there yet"
    one, other = (await children.claim(2)).claims
    await children.finish(one)
    assert await client.delete(parents.keys.marker) == 1
    await children.finish(other)
    assert await client.exists(parents.keys.marker)


@on_all
async def test_the_relay_hears_what_each_queue_itself_wants(
    client: Client, flows: FlowProducer, queue_name: str
) -> None:
    """What was read of one queue's record must not be used for the other."""
    one, other = Queue(f"{{{queue_name}}}one", client), Scene(Queue(f"{{{queue_name}}}other", client))
    await change_meta(client, one.keys.meta, notify="failed")
    await change_meta(client, other.queue.keys.meta, notify="completed")
    await flows.add_bulk([job(one.name, job(other.queue.name)), job(one.name, job(other.queue.name))])
    for outcome in ("completed", "failed"):
        (claim,) = (await other.claim()).claims
        await other.finish(claim, outcome, b'{"kind":"poison","message":"","details":{}}')
    told: Any = {queue.name: await client.xrange(queue.keys.outbox) for queue in (one, other.queue)}
    kinds = {name: [b'"type":"failed"' in fields[b"event"] for _, fields in entries] for name, entries in told.items()}
    assert kinds == {one.name: [True], other.queue.name: [False]}


async def test_a_tagged_queue_is_a_queue_like_any_other(queue_name: str, client: Client, url: str) -> None:
    async def process(job: ActiveJob) -> object:
        await job.update_progress(1)
        return job.data

    queue = Queue(f"{{{queue_name}}}paint", client)
    job = await run_one(queue, url, process)
    assert (job.queue, job.state, job.result_as(dict)) == (queue.name, "completed", {"n": 1})
    await check_queue(queue)
    assert await dump(client, Queue(queue_name, client).keys.prefix) == {}
