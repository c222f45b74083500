"""What is read of children: by state, in pages, as values, as a tree."""

from typing import Any

import pytest

from orchestrator import children
from orchestrator.children import Child, ChildState
from orchestrator.errors import InvalidOption, JobNotFound
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.queue import Queue
from orchestrator.scripts import Scripts
from tests.invariants import check_queue
from tests.lua.scenarios.families import settled
from tests.lua.scenarios.flows import child, claim, flow
from tests.lua.scene import Scene

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def test_what_became_of_children_is_read_by_state(scene: Scene) -> None:
    await settled(scene)
    queue = scene.queue
    assert await queue.get_dependencies_count("root") == (1, 1, 1, 1)
    page = await queue.get_dependencies("root")
    assert page.cursor is None
    found = {one.id: one for one in page.children}
    assert {job_id: str(one.state) for job_id, one in found.items()} == {
        "a": "processed", "b": "ignored", "c": "failed", "d": "unprocessed",
    }  # fmt: skip
    assert found["a"].result is not None
    assert found["b"].error is not None
    assert (bytes(found["a"].result), found["b"].error.kind) == (b"1", "transient")
    assert [one.id for one in (await queue.get_dependencies("root", [ChildState.FAILED])).children] == ["c"]
    assert await queue.get_children_values("root") == {f"{queue.name}:a": 1}


async def test_children_are_read_in_pages(scene: Scene) -> None:
    entries = {f"{scene.queue.name}:x{n}": f'c"{"v" * 60}{n}"' if n % 2 else "p" for n in range(1000)}
    await scene.active("root")
    await scene.client.hset(f"{scene.prefix}children:root", mapping=entries)
    found: list[Child] = []
    pages, cursor = 0, None
    while pages == 0 or cursor is not None:
        page = await scene.queue.get_dependencies("root", [ChildState.PROCESSED], cursor, 50)
        found += page.children
        cursor, pages = page.cursor, pages + 1
        assert len(page.children) < 100
    assert len({one.id for one in found}) == len(found) == 500
    assert pages > 5
    assert len(await scene.queue.get_children_values("root")) == 500


async def test_a_long_result_is_read_of_the_child_itself_or_kept_when_that_goes(scene: Scene) -> None:
    long = b'"%s"' % (b"x" * 70_000)
    await scene.active("root")
    for job_id, options in (
        ("kept", {}),
        ("gone", {"remove_on_complete": True}),
        ("counted", {"remove_on_complete": 9}),
    ):
        await child(scene, job_id, **options)
        await scene.finish(await claim(scene), content=long)
    stored = await scene.client.hgetall(f"{scene.prefix}children:root")
    assert {name.decode().partition(":")[2]: len(value) for name, value in stored.items()} == {
        "kept": 1, "counted": 1, "gone": 70_003,
    }  # fmt: skip
    values = await scene.queue.get_children_values("root")
    assert {len(value) for value in values.values()} == {70_000}
    assert len(values) == 3
    await scene.queue.remove("kept")
    assert len(await scene.queue.get_children_values("root")) == 2
    await check_queue(scene.queue)


async def test_children_of_no_job_are_not_found_and_a_job_without_any_has_none(scene: Scene) -> None:
    for call in (scene.queue.get_children_values, scene.queue.get_dependencies, scene.queue.get_dependencies_count):
        with pytest.raises(JobNotFound):
            await call("nobody")
    assert await scene.queue.get_flow("nobody") is None
    await scene.add("alone")
    assert await scene.queue.get_children_values("alone") == {}
    assert await scene.queue.get_dependencies_count("alone") == (0, 0, 0, 0)
    alone = await scene.queue.get_flow("alone")
    assert alone is not None
    assert alone.children == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"states": "processed"}, "states"),
        ({"states": ["done"]}, "states"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": -1}, "cursor"),
        ({"count": 0}, "count"),
        ({"count": 101}, "count"),
    ],
)
async def test_a_page_that_cannot_be_is_refused(queue: Queue, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.get_dependencies("a", **fields)
    assert refused.value.field == named


async def test_a_flow_is_read_as_far_as_asked(scene: Scene, url: str) -> None:
    name = scene.queue.name
    async with FlowProducer(url) as flows:
        below = [FlowJob("p", name, children=[FlowJob("p", name), FlowJob("p", name)]) for _ in range(5)]
        tree = await flows.add(FlowJob("p", name, children=below))
    root = tree.job.id

    async def shape(**limits: int) -> list[int]:
        read = await scene.queue.get_flow(root, **limits)
        assert read is not None
        return [len(read.children), sum(len(node.children) for node in read.children)]

    assert await shape() == [5, 10]
    assert await shape(depth=1) == [0, 0]
    assert await shape(depth=2) == [5, 0]
    assert await shape(max_children=1) == [1, 1]
    for limits in ({"depth": 0}, {"depth": 21}, {"max_children": 0}, {"max_children": 501}):
        with pytest.raises(InvalidOption):
            await scene.queue.get_flow(root, **limits)


async def test_a_flow_is_read_level_by_level(scene: Scene, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = scene.queue.name
    async with FlowProducer(url) as flows:
        below = [FlowJob("p", name, children=[FlowJob("p", name) for _ in range(3)]) for _ in range(30)]
        tree = await flows.add(FlowJob("p", name, children=below))
    calls: list[str] = []
    run = Scripts._run

    async def note(scripts: Scripts, script: str, *args: Any) -> Any:
        calls.append(script)
        return await run(scripts, script, *args)

    monkeypatch.setattr(Scripts, "_run", note)
    read = await scene.queue.get_flow(tree.job.id, max_children=40)
    assert read is not None
    assert {node.job.id: len(node.children) for node in read.children} == dict.fromkeys(
        [node.job.id for node in tree.children], 3
    )
    assert calls == ["get_job"] + ["get_children"] * 7  # 5 parents and 200 children at most, a call
    calls.clear()
    monkeypatch.setattr(children, "MAX_READ", 8)
    read = await scene.queue.get_flow(tree.job.id, max_children=20)
    assert read is not None
    assert [len(read.children), sum(len(node.children) for node in read.children)] == [20, 60]


async def test_a_child_that_is_gone_is_missing_in_the_tree_but_not_its_result(scene: Scene) -> None:
    await flow(scene, "a", "b", remove_on_complete=True)
    await scene.finish(await claim(scene))
    read = await scene.queue.get_flow("root")
    assert read is not None
    assert [node.job.id for node in read.children] == ["b"]
    assert await scene.queue.get_children_values("root") == {f"{scene.queue.name}:a": 1}
