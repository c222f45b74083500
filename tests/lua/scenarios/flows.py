"""Situations of the scripts for flows, and of the others where a parent or a child is concerned."""

from typing import Any

import msgspec

from orchestrator.job import JobOptions
from orchestrator.parent import Parent
from orchestrator.scripts import Claim, Finish, FlowEntry
from tests.lua.scenarios.table import ERROR, Call, age, call, scenario
from tests.lua.scenarios.working import claiming, finishing
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene

POLICIES = ("fail_parent", "ignore", "remove", "continue_parent")


def entry(scene: Scene, job_id: str, parent: int = 0, above: str = "", children: int = 0, **options: Any) -> FlowEntry:
    """A job of a flow in the scene's queue; `above` is its parent's id."""
    if above:
        options["parent"] = Parent(scene.queue.name, above)
    header = msgspec.structs.replace(JobOptions(**options).header("paint"), children=children)
    return FlowEntry(scene.queue.name, job_id, parent, msgspec.json.encode(header), b'{"x":1}')


async def flow(scene: Scene, *children: str, root: dict[str, Any] | None = None, **options: Any) -> None:
    """A parent `root` and its children, all with these options."""
    entries = [entry(scene, "root", children=len(children), **(root or {}))]
    entries += [entry(scene, child, 1, "root", **options) for child in children]
    await scene.scripts.add_flow("flow", entries)
    for each in ("root", *children):
        scene.definitions[each] = await scene.definition(each)


async def child(scene: Scene, job_id: str, parent: str = "root", **options: Any) -> str:
    """A child added at run time."""
    return await scene.add(job_id, parent=Parent(scene.queue.name, parent), **options)


async def claim(scene: Scene) -> Claim:
    """The next claim."""
    (claimed,) = (await scene.claim()).claims
    return claimed


# ── adding ───────────────────────────────────────────────────────────────────────────────────────────


def deep(scene: Scene) -> list[FlowEntry]:
    """Three levels, a delay, a priority and what the relay wants to know."""
    return [
        entry(scene, "root", children=2, delay_ms=5000, notify=("added", "waiting-children")),
        entry(scene, "a", 1, "root", children=1, priority=3),
        entry(scene, "aa", 2, "a", expires_ms=90_000),
        entry(scene, "b", 1, "root", delay_ms=9000, on_failure="ignore"),
    ]


@scenario("add_flow", "three levels")
async def _(scene: Scene) -> Call:
    return call("t", deep(scene))


@scenario("add_flow", "two flows, of which one is there")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    return call("t", [entry(scene, "root", children=1), entry(scene, "b", 1, "root"), entry(scene, "other")])


@scenario("add_flow", "an id below the root is taken")
async def _(scene: Scene) -> Call:
    await scene.add("aa")
    return call("t", deep(scene))


@scenario("add_flow", "its root was removed in the meantime")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    await scene.scripts.remove_job("r", "root")
    return call("flow", [entry(scene, "root", children=1), entry(scene, "a", 1, "root")])


@scenario("add_flow", "below a job that waits for a worker")
async def _(scene: Scene) -> Call:
    await scene.add("top", delay_ms=1000)
    return call("t", [entry(scene, "root", above="top", children=1), entry(scene, "a", 1, "root")])


@scenario("add_flow", "below no job")
async def _(scene: Scene) -> Call:
    return call("t", [entry(scene, "root", above="top")])


@scenario("add_flow", "with too many levels")
async def _(scene: Scene) -> Call:
    chain = [entry(scene, f"j{n}", n, f"j{n - 1}" if n else "", 1 if n < 20 else 0) for n in range(21)]
    return call("t", chain)


def adding_child(title: str, parent: str = "root", **options: Any) -> None:
    """A scenario that adds a child to a running job."""

    @scenario("add_jobs", title)
    async def _(scene: Scene) -> Call:
        await scene.active("root")
        await scene.completed("done")
        await scene.add("waiting")
        await scene.add("late", delay_ms=5000)
        header = JobOptions(parent=Parent(scene.queue.name, parent), **options).header("paint")
        return call("t", [("child", msgspec.json.encode(header), b"{}")])


adding_child("a child of a running job", on_failure="remove")
adding_child("a child of a waiting job", "waiting")
adding_child("a child of a delayed job", "late")
adding_child("a child of a finished job", "done")
adding_child("a child of no job", "nobody")


@scenario("add_jobs", "a child whose id is taken by a job without a parent")
async def _(scene: Scene) -> Call:
    await scene.active("root")
    await scene.add("a")
    header = JobOptions(parent=Parent(scene.queue.name, "root")).header("paint")
    return call("t", [("a", msgspec.json.encode(header), b"{}")])


@scenario("add_jobs", "a child that is there already")
async def _(scene: Scene) -> Call:
    await scene.active("root")
    await child(scene, "a")
    header = JobOptions(parent=Parent(scene.queue.name, "root")).header("paint")
    return call("t", [("a", msgspec.json.encode(header), b"{}")])


@scenario("add_jobs", "a child below twenty levels")
async def _(scene: Scene) -> Call:
    chain = [entry(scene, f"j{n}", n, f"j{n - 1}" if n else "", 1 if n < 19 else 0) for n in range(20)]
    await scene.scripts.add_flow("flow", chain)
    header = JobOptions(parent=Parent(scene.queue.name, "j19")).header("paint")
    return call("t", [("a", msgspec.json.encode(header), b"{}")])


# ── ending ───────────────────────────────────────────────────────────────────────────────────────────


def ending_child(policy: str, outcome: str, content: bytes, siblings: int) -> None:
    """A scenario in which a child ends while others may be pending."""

    @scenario("move_to_finished", f"a child: {outcome}, {policy}, {siblings} more")
    async def _(scene: Scene) -> Call:
        await flow(scene, *"abc"[: siblings + 1], on_failure=policy, root={"priority": 2})
        return finishing(_end(await claim(scene), outcome, content), slots=0)


for policy in POLICIES:
    for siblings in (0, 1):
        ending_child(policy, "failed", ERROR, siblings)
    ending_child(policy, "canceled", b"{}", 1)
ending_child("fail_parent", "completed", b"[1]", 0)
ending_child("fail_parent", "completed", b"[1]", 1)
ending_child("ignore", "completed", b'"%s"' % (b"x" * 70_000), 0)


@scenario("move_to_finished", "the last child, with a long result, is not kept, and its parent has a delay")
async def _(scene: Scene) -> Call:
    await flow(scene, "a", remove_on_complete=True, root={"delay_ms": 70_000})
    return finishing(_end(await claim(scene), "completed", b'"%s"' % (b"x" * 70_000)), slots=0)


@scenario("move_to_finished", "a child three levels down fails all above it")
async def _(scene: Scene) -> Call:
    await scene.scripts.add_flow(
        "flow",
        [
            entry(scene, "root", children=1, remove_on_fail=age(1000)),
            entry(scene, "a", 1, "root", children=1, remove_on_fail=True),
            entry(scene, "aa", 2, "a"),
        ],
    )
    return finishing(_end(await claim(scene), "failed", ERROR), slots=0)


@scenario("move_to_finished", "a child of a running parent fails")
async def _(scene: Scene) -> Call:
    await scene.active("root")
    await child(scene, "a")
    return finishing(_end(await claim(scene), "failed", ERROR), slots=0)


def ending_parent(title: str, outcome: str, content: bytes, pause_ms: int = -1, *, fails: bool = False) -> None:
    """A scenario in which a running parent ends its attempt while a child is pending, or has failed."""

    @scenario("move_to_finished", title)
    async def _(scene: Scene) -> Call:
        parent = await scene.active("root", attempts=3)
        await child(scene, "a")
        if fails:
            await scene.finish(await claim(scene), "failed", ERROR)
        return finishing(_end(parent, outcome, content, pause_ms), slots=0)


ending_parent("a parent waits for its child", "waiting-children", b"{}")
ending_parent("a parent is handed back while a child is pending", "returned", b"{}")
ending_parent("a parent fails and has to wait for its child", "failed", ERROR, 0)
ending_parent("a parent fails and has to wait for its child and for its pause", "failed", ERROR, 60_000)
ending_parent("a parent completes before its child", "completed", b"1")
ending_parent("a parent completes after a child that failed it", "completed", b"1", fails=True)
ending_parent("a parent waits after a child that failed it", "waiting-children", b"{}", fails=True)
ending_parent("a parent stops after a child that failed it", "canceled", b"{}", fails=True)


@scenario("move_to_finished", "a parent waits, and no child is pending")
async def _(scene: Scene) -> Call:
    return finishing(_end(await scene.active("root"), "waiting-children", b"{}"), slots=0)


@scenario("move_to_active", "a parent after its children")
async def _(scene: Scene) -> Call:
    await flow(scene, "a")
    await scene.finish(await claim(scene))
    return claiming()


@scenario("move_stalled_to_wait", "of flows: a parent, one with a failed child, and a child", counts=True)
async def _(scene: Scene) -> Call:
    await scene.active("root")
    await child(scene, "a", max_stalled=0)
    await claim(scene)
    await scene.active("top")
    await child(scene, "b", "top")
    await scene.client.zadd(f"{scene.prefix}active", {"root": 1, "a": 2, "top": 3}, xx=True)
    return call(LEASE_MS, INTERVAL_MS, 10)


@scenario("move_due_jobs", "a child and its parent came too late", counts=True)
async def _(scene: Scene) -> Call:
    await flow(scene, "a", expires_ms=1000, root={"expires_ms": 1000, "remove_on_fail": True})
    await scene.pass_deadlines()
    return call(10)


@scenario("move_due_jobs", "a child came too late and fails its parent's parent", counts=True)
async def _(scene: Scene) -> Call:
    await scene.scripts.add_flow(
        "flow",
        [
            entry(scene, "root", children=1),
            entry(scene, "a", 1, "root", children=1),
            entry(scene, "aa", 2, "a", expires_ms=1000),
        ],
    )
    await scene.pass_deadlines()
    return call(10)


def _end(claimed: Claim, outcome: str, content: bytes, pause_ms: int = -1) -> Finish:
    return Finish(claimed.job.id, claimed.lease, outcome, content, pause_ms)
