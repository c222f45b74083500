"""Situations in which parents and children are steered and read."""

from orchestrator.scripts import Finish
from tests.lua.scenarios.flows import child, claim, deep, flow
from tests.lua.scenarios.table import CANCEL, ERROR, Call, age, call, scenario
from tests.lua.scenarios.working import finishing
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene

# ── steering ─────────────────────────────────────────────────────────────────────────────────────────


@scenario("cancel_job", "a flow, some of which runs")
async def _(scene: Scene) -> Call:
    await scene.scripts.add_flow("flow", deep(scene))
    await claim(scene)
    return call("t", "root", CANCEL)


@scenario("cancel_job", "a parent alone")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", "b")
    return call("t", "root", CANCEL, whole=False)


@scenario("cancel_job", "a child")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", "b")
    return call("t", "a", CANCEL)


@scenario("cancel_job", "a flow whose root is beyond the count itself, for its end is not the newest")
async def _(scene: Scene) -> Call:
    await scene.canceled("kept", remove_on_fail=1)
    await scene.client.zadd(f"{scene.prefix}canceled", {"kept": 4_000_000_000_000})
    await flow(scene, "a", root={"remove_on_fail": 1})
    return call("t", "root", CANCEL)


async def large(scene: Scene) -> None:
    """A canceled flow, of whose members more were not told yet than one script tells."""
    await flow(scene, *(f"c{number}" for number in range(40)))
    await child(scene, "below", "c0")
    await scene.scripts.cancel_job("t", "root", CANCEL)


@scenario("cancel_descendants", "those that one script could not tell", counts=True)
async def _(scene: Scene) -> Call:
    await large(scene)
    return call("root", 30)


@scenario("cancel_descendants", "of a job that was not canceled")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    return call("root", 10)


@scenario("move_due_jobs", "of a canceled flow whose canceler is gone", counts=True)
async def _(scene: Scene) -> Call:
    await large(scene)
    return call(30)


@scenario("change_priority", "of a parent that waits")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    return call("t", "root", 7)


@scenario("promote", "a parent that waits")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", root={"delay_ms": 1000})
    return call("t", "root")


@scenario("reprocess_job", "a failed child of a failed parent")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", "b", root={"remove_on_fail": age(1000)})
    await scene.finish(await claim(scene), "failed", ERROR)
    return call("t", "a")


@scenario("reprocess_job", "an ignored child of a parent that waits")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", "b", on_failure="ignore")
    await scene.finish(await claim(scene), "failed", ERROR)
    return call("t", "a")


@scenario("reprocess_job", "a failed parent with a child that is pending")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", "b", root={"remove_on_fail": age(1000)})
    await scene.finish(await claim(scene), "failed", ERROR)
    return call("t", "root")


@scenario("reprocess_job", "a canceled parent of some who were not told yet")
async def _(scene: Scene) -> Call:
    await large(scene)
    return call("again", "root")


@scenario("remove_job", "a flow")
async def _(scene: Scene) -> Call:
    await scene.scripts.add_flow("flow", deep(scene))
    return call("t", "root")


@scenario("remove_job", "a flow, some of which runs")
async def _(scene: Scene) -> Call:
    await scene.scripts.add_flow("flow", deep(scene))
    await claim(scene)
    return call("t", "root")


@scenario("remove_job", "a parent alone")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    return call("t", "root", whole=False)


@scenario("remove_job", "the last child")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    return call("t", "a")


@scenario("remove_unprocessed_children", "of a running parent: one ran, one runs, one has a running child, two wait")
async def _(scene: Scene) -> Call:
    await scene.active("root")
    await child(scene, "a")
    await scene.finish(await claim(scene))
    await child(scene, "b")
    await claim(scene)
    await child(scene, "c", delay_ms=9000)
    await child(scene, "cc", "c")
    await claim(scene)
    await child(scene, "d")
    await child(scene, "e", delay_ms=5000)
    await child(scene, "ee", "e")
    return call("t", "root")


@scenario("remove_unprocessed_children", "all of a parent that waits")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", "b", root={"priority": 3})
    return call("t", "root")


@scenario("remove_unprocessed_children", "of no job")
async def _(scene: Scene) -> Call:
    return call("t", "root")


@scenario("remove_child_dependency", "the last one")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    return call("t", "a")


@scenario("remove_child_dependency", "of a job without a parent")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a")


@scenario("remove_child_dependency", "of no job")
async def _(scene: Scene) -> Call:
    return call("t", "a")


@scenario("get_children", "of a flow, one gone, and of a job that is not there")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", "b", remove_on_complete=True)
    await scene.finish(await claim(scene))
    name = scene.queue.name
    return call(0, 10, [(name, "root"), (name, "nobody")])


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────


async def settled(scene: Scene) -> None:
    """A parent with a child of each kind."""
    await scene.active("root")
    await child(scene, "a")
    await scene.finish(await claim(scene))
    await child(scene, "b", on_failure="ignore")
    await scene.finish(await claim(scene), "failed", ERROR)
    await child(scene, "c")
    await scene.finish(await claim(scene), "failed", ERROR)
    await child(scene, "d")


@scenario("get_dependencies", "of every kind")
async def _(scene: Scene) -> Call:
    await settled(scene)
    return call("root", "0", 10, "pcfi")


@scenario("get_dependencies", "of one kind")
async def _(scene: Scene) -> Call:
    await settled(scene)
    return call("root", "0", 10, "i")


@scenario("get_dependencies", "of no job")
async def _(scene: Scene) -> Call:
    return call("root", "0", 10, "pcfi")


@scenario("get_dependencies_count", "of every kind")
async def _(scene: Scene) -> Call:
    await settled(scene)
    return call("root")


@scenario("get_dependencies_count", "of a job without children")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("a")


@scenario("get_counts", "with a parent that waits")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    return call()


@scenario("get_recent", "with a parent that waits")
async def _(scene: Scene) -> Call:
    await scene.completed("done")
    await flow(scene, "a")
    return call(0, 50)


@scenario("get_dependencies_count", "of no job")
async def _(scene: Scene) -> Call:
    return call("root")


@scenario("remove_unprocessed_children", "of a parent whose only child runs")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    await claim(scene)
    return call("t", "root")


@scenario("move_to_finished", "a child whose parent was removed alone")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    claimed = await claim(scene)
    await scene.scripts.remove_job("r", "root", whole=False)
    return finishing(Finish("a", claimed.lease, "completed", b"1"), slots=0)


@scenario("move_stalled_to_wait", "a child, and then its running parent, which that failed", counts=True)
async def _(scene: Scene) -> Call:
    await scene.active("root")
    await child(scene, "a", max_stalled=0)
    await claim(scene)
    await scene.client.zadd(f"{scene.prefix}active", {"root": 2, "a": 1}, xx=True)
    return call(LEASE_MS, INTERVAL_MS, 10)
