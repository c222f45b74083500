"""Situations where parents and children meet groups, limits, steps, bulks and cleaning."""

from orchestrator.parent import Parent
from orchestrator.scripts import Finish
from tests.lua.scenarios.adding import one
from tests.lua.scenarios.cleaning import epoch
from tests.lua.scenarios.flows import child, claim, entry, flow
from tests.lua.scenarios.table import ERROR, Call, call, scenario
from tests.lua.scenarios.working import finishing
from tests.lua.scene import Scene


def step(outcome: str) -> None:
    """A parent with a pending child takes a step."""

    @scenario("move_to_finished", f"a parent with a pending child: {outcome}")
    async def _(scene: Scene) -> Call:
        root = await scene.active("root", batch_key="k")
        await child(scene, "a")
        return finishing(Finish("root", root.lease, outcome, b"{}", 5000), slots=0)


for name in ("waiting", "delayed", "rate_limited", "returned"):
    step(name)


@scenario("move_to_finished", "a rate limit of a parent whose child failed it")
async def _(scene: Scene) -> Call:
    root = await scene.active("root")
    await child(scene, "a")
    await scene.finish(await claim(scene), "failed", ERROR)
    return finishing(Finish("root", root.lease, "rate_limited", b"{}", 5000), slots=0)


@scenario("move_to_finished", "the last child of a parent with a group and a batch key")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", root={"group": "g", "batch_key": "k"})
    claimed = await claim(scene)
    return finishing(Finish("a", claimed.lease, "completed", b"1", -1), slots=0)


@scenario("add_jobs", "a child of a parent that waits in its group")
async def _(scene: Scene) -> Call:
    await scene.add("root", group="g", batch_key="k")
    header = one("a", parent=Parent(scene.queue.name, "root"), group="g")
    return call("t", [header])


@scenario("add_bulk", "children of two parents")
async def _(scene: Scene) -> Call:
    parents = [Parent(scene.queue.name, name) for name in ("root", "running")]
    await scene.active("running")
    await scene.add("root")
    return call("t", [one(f"c{number}", parent=parents[number % 2]) for number in range(4)])


@scenario("add_bulk", "a child that is there, one that was, and a new one")
async def _(scene: Scene) -> Call:
    parent = Parent(scene.queue.name, "root")
    await scene.active("root")
    await child(scene, "a")
    await child(scene, "gone")
    await scene.scripts.remove_job("r", "gone")
    scene.definitions.pop("gone")
    return call("t", [one("a", parent=parent), one("gone", parent=parent), one("b", parent=parent)])


@scenario("add_bulk", "a child of no job")
async def _(scene: Scene) -> Call:
    return call("t", [one("a"), one("b", parent=Parent(scene.queue.name, "nobody"))])


@scenario("add_bulk", "a child whose id is taken by a job without a parent")
async def _(scene: Scene) -> Call:
    await scene.active("root")
    await scene.add("a")
    return call("t", [one("b"), one("a", parent=Parent(scene.queue.name, "root"))])


@scenario("add_flow", "with groups")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_group("s", "g", {"max_waiting": 3})
    root = entry(scene, "root", children=2, group="g")
    return call("t", [root, *(entry(scene, name, 1, "root", group="g") for name in "ab")])


@scenario("add_flow", "more than may wait")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_limits("l", max_waiting=1)
    return call("t", [entry(scene, "root", children=1), entry(scene, "a", 1, "root")])


@scenario("add_flow", "more than the group may hold")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_group("s", "g", {"max_waiting": 1})
    root = entry(scene, "root", children=2)
    return call("t", [root, *(entry(scene, name, 1, "root", group="g") for name in "ab")])


@scenario("drain", "all children of a parent")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", "b", root={"delay_ms": 50_000})
    return call("t", "waiting", 10)


@scenario("clean", "children of a parent")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", "b")
    return call("t", "waiting", 0, 10, 0, "")


@scenario("obliterate", "parents and children", counts=True)
async def _(scene: Scene) -> Call:
    await flow(scene, "a", "b")
    await claim(scene)
    return call(await epoch(scene), force=True, limit=100, closing_ms=60_000)


@scenario("retry_jobs", "a family of which each failed the next")
async def _(scene: Scene) -> Call:
    await scene.scripts.add_flow(
        "flow",
        [
            entry(scene, "0", children=1),
            entry(scene, "1", 1, "0", children=1),
            entry(scene, "2", 2, "1"),
        ],
    )
    await scene.finish(await claim(scene), "failed", ERROR)
    return call("t", "failed", 10, "")


@scenario("reprocess_job", "a child of a parent that was free to run")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", root={"group": "g"})
    await scene.finish(await claim(scene))
    return call("t", "a")
