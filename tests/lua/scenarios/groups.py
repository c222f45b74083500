"""Situations of groups, turns and batches."""

from typing import Any

import msgspec

from orchestrator.job import JobOptions
from orchestrator.scripts import Finish
from tests.lua.scenarios.table import Call, call, scenario
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene


def claiming(slots: int = 1, **wishes: Any) -> Call:
    """A call that claims."""
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, slots, msgspec.json.encode(wishes) if wishes else b"")


def adding(title: str, **options: Any) -> None:
    """A scenario that adds the first job of a queue."""

    @scenario("add_jobs", title)
    async def _(scene: Scene) -> Call:
        return call("t", [("new", msgspec.json.encode(JobOptions(**options).header("paint")), b"{}")])


adding("a job of a group, of a batch, with an affinity", group="a", cost=2.5, batch_key="b", affinity_key="k")
adding("a delayed job of a group", group="a", delay_ms=50_000)


@scenario("add_jobs", "an aged one, and one that has no group and shares")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_group_defaults("d", {"ageing_ms": 1000, "fair_ungrouped": 1})
    await scene.add("a", group="a", priority=3)
    return call("t", [("new", b'{"n":"paint","p":7}', b"{}")])


@scenario("move_to_active", "groups, one paused, one full, one limited, one at a rate")
async def _(scene: Scene) -> Call:
    for number, group in enumerate(("paused", "full", "full", "limited", "rated", "rated", "free", "free")):
        await scene.add(f"{number}", group=group)
    await scene.scripts.set_group("1", "paused", {"paused": True})
    await scene.scripts.set_group("2", "full", {"concurrency": 1})
    await scene.scripts.set_group("3", "limited", {"limited_ms": 500_000})
    await scene.scripts.set_group("4", "rated", {"rate_max": 1, "rate_ms": 500_000})
    return claiming(8)


@scenario("move_to_active", "held groups may start again")
async def _(scene: Scene) -> Call:
    await scene.add("1", group="a")
    await scene.scripts.set_group("1", "a", {"limited_ms": 500_000})
    await scene.client.hset(f"{scene.prefix}ginfo:a", "limited_until", 1)
    await scene.client.zadd(f"{scene.prefix}groups:held", {"a": 1})
    return claiming(2)


@scenario("move_to_active", "more groups held than are looked at in one call")
async def _(scene: Scene) -> Call:
    for number in range(20):
        await scene.add(f"{number}", group=f"g{number}")
    await scene.scripts.set_group_defaults("d", {"group_rate_max": 1, "group_rate_ms": 500_000})
    for number in range(20):
        await scene.client.lpush(f"{scene.prefix}grate:g{number}", 9_000_000_000_000)
    return claiming(1)


@scenario("move_to_active", "a limit of the worker's own")
async def _(scene: Scene) -> Call:
    for number in range(3):
        await scene.add(f"{number}")
    return claiming(3, limiter=[2, 500_000])


@scenario("move_to_active", "a limit of the worker's own under the queue's")
async def _(scene: Scene) -> Call:
    for number in range(4):
        await scene.add(f"{number}")
    await scene.scripts.set_limits("l", rate=(2, 500_000))
    return claiming(4, limiter=[2, 900_000])


@scenario("move_to_active", "warm keys, among jobs without a group")
async def _(scene: Scene) -> Call:
    for number, key in enumerate(("cold", None, "warm", "cold")):
        await scene.add(f"{number}", affinity_key=key)
    return claiming(1, warm=["warm"], patience_ms=10_000)


@scenario("move_to_active", "warm keys, of another priority")
async def _(scene: Scene) -> Call:
    await scene.add("a", affinity_key="cold", priority=1)
    await scene.add("b", affinity_key="warm", priority=2)
    return claiming(1, warm=["warm"], patience_ms=10_000)


@scenario("move_to_active", "warm keys, and the first has waited long enough")
async def _(scene: Scene) -> Call:
    await scene.add("a", affinity_key="cold")
    await scene.add("b", affinity_key="warm")
    await scene.change_record("a", passed_at=1)
    return claiming(1, warm=["warm"], patience_ms=10_000)


@scenario("move_to_active", "warm keys, among groups of which one is held")
async def _(scene: Scene) -> Call:
    for number, group in enumerate("abca"):
        await scene.add(f"{number}", group=group, affinity_key="warm" if group != "a" else "cold")
    await scene.scripts.set_group("1", "b", {"concurrency": 1})
    await scene.client.hset(f"{scene.prefix}ginfo:b", "active", 1)
    return claiming(1, warm=["warm"], patience_ms=10_000)


@scenario("move_to_active", "a batch over several groups")
async def _(scene: Scene) -> Call:
    await scene.add("alone", batch_key="other")
    for number, group in enumerate("abbc"):
        await scene.add(f"{number}", group=group, batch_key="wide")
    await scene.scripts.set_group("1", "b", {"concurrency": 1})
    await scene.claim()
    return claiming(4, batch={"min_size": 1, "linger_ms": 0})


@scenario("move_to_active", "a batch that is too small lingers")
async def _(scene: Scene) -> Call:
    await scene.add("a", batch_key="wide")
    return claiming(4, batch={"min_size": 2, "linger_ms": 500_000})


@scenario("move_to_active", "a batch that still lingers, and nothing has come")
async def _(scene: Scene) -> Call:
    await scene.add("a", batch_key="wide")
    wishes = b'{"batch":{"min_size":2,"linger_ms":500000}}'
    await scene.scripts.move_to_active("before", "lane:1", "worker", LEASE_MS, INTERVAL_MS, 4, wishes)
    return claiming(4, batch={"min_size": 2, "linger_ms": 500_000})


@scenario("move_to_active", "a batch most of whose jobs are in a group that may not start")
async def _(scene: Scene) -> Call:
    await scene.queue.pause_group("g")
    for number in range(3):
        await scene.add(f"{number}", group="g", batch_key="wide")
    await scene.add("a", group="h", batch_key="wide")
    return claiming(4, batch={"min_size": 2, "linger_ms": 500_000})


@scenario("move_to_active", "a batch that has lingered, and a job without one")
async def _(scene: Scene) -> Call:
    await scene.add("a", batch_key="wide")
    await scene.add("b")
    await scene.change_record("a", entered_at=1)
    return claiming(4, batch={"min_size": 2, "linger_ms": 500_000})


@scenario("move_to_finished", "a job of a group that took less than usual, its group was full")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_group("1", "a", {"concurrency": 1, "weight": 2.0})
    claim = await scene.active("a", group="a")
    await scene.add("b", group="a")
    await scene.change_record("a", started_at=10**13)
    await scene.change_meta(pace=1000)
    return call("t", "lane:0", "w", LEASE_MS, INTERVAL_MS, 1, [Finish("a", claim.lease, "completed", b"1")])


@scenario("cancel_job", "the last one of a group, of a batch")
async def _(scene: Scene) -> Call:
    await scene.add("a", group="a", batch_key="b")
    return call("t", "a", b'{"by":"me","reason":"why"}')


@scenario("change_priority", "of one in an aged group")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_group_defaults("d", {"ageing_ms": 1000})
    await scene.add("a", group="a", priority=5)
    await scene.add("b", group="a", priority=5)
    return call("t", "a", 2)


@scenario("move_due_jobs", "groups were idle for an hour, some have settings, one has a running job", counts=True)
async def _(scene: Scene) -> Call:
    for name in ("gone", "kept", "busy"):
        claim = await scene.active(name, group=name)
        if name != "busy":
            await scene.finish(claim)
    await scene.scripts.set_group("1", "kept", {"weight": 2.0})
    await scene.client.zadd(f"{scene.prefix}groups:idle", {"gone": 1, "kept": 2, "busy": 3})
    return call(10)


@scenario("set_group", "everything")
async def _(scene: Scene) -> Call:
    await scene.add("a", group="a")
    changes = {"weight": 2.5, "concurrency": 3, "rate_max": 1, "rate_ms": 1000, "max_waiting": 9, "paused": True}
    return call("t", "a", changes)


@scenario("set_group", "back to the defaults")
async def _(scene: Scene) -> Call:
    await scene.add("a", group="a")
    await scene.scripts.set_group("1", "a", {"weight": 2.0, "concurrency": 3, "paused": True, "limited_ms": 9000})
    return call("t", "a", {"weight": None, "concurrency": None, "paused": False, "limited_ms": 0})


@scenario("set_group_defaults", "some, with a group held")
async def _(scene: Scene) -> Call:
    await scene.add("a", group="a")
    await scene.scripts.set_group("1", "a", {"paused": True})
    return call("t", {"group_concurrency": 2, "ageing_ms": 1000, "fair_ungrouped": 1})


@scenario("set_group_defaults", "none any more")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_group_defaults("d", {"group_concurrency": 2, "ageing_ms": 1000})
    return call("t", {"group_concurrency": 0, "ageing_ms": 0})


async def some_groups(scene: Scene) -> None:
    """A group in each place, and a job without one."""
    await scene.completed("done", group="idle")
    await scene.change_record("done", started_at=1, finished_at=40)
    await scene.add("plain")
    for number, group in enumerate("abab"):
        await scene.add(f"{number}", group=group)
    await scene.scripts.set_group("1", "b", {"limited_ms": 500_000, "weight": 2.0})


@scenario("get_groups", "in every place")
async def _(scene: Scene) -> Call:
    await some_groups(scene)
    return call(0, 50)


@scenario("get_groups", "a page across places")
async def _(scene: Scene) -> Call:
    await some_groups(scene)
    return call(1, 1)


@scenario("get_group", "with its jobs")
async def _(scene: Scene) -> Call:
    await some_groups(scene)
    return call("b", 1, 50)


@scenario("get_group", "that was never used")
async def _(scene: Scene) -> Call:
    return call("x", 0, 0)


@scenario("get_position", "in a group behind another")
async def _(scene: Scene) -> Call:
    await some_groups(scene)
    await scene.add("mine", group="c")
    return call("mine")


@scenario("get_position", "in a held group")
async def _(scene: Scene) -> Call:
    await some_groups(scene)
    return call("3")


@scenario("get_position", "without a group, in a paused, limited queue at its concurrency")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    await scene.add("b")
    await scene.scripts.set_limits("l", concurrency=1, limited_ms=500_000)
    await scene.scripts.pause("p", paused=True)
    return call("b")


@scenario("get_position", "delayed")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=50_000)
    return call("a")


@scenario("get_position", "none")
async def _(scene: Scene) -> Call:
    return call("a")


@scenario("get_jobs", "waiting ones with and without a group, a page across both")
async def _(scene: Scene) -> Call:
    await some_groups(scene)
    return call(["waiting"], 0, 3)


@scenario("move_to_active", "a batch passes over a group that may not start")
async def _(scene: Scene) -> Call:
    for number in range(6):
        await scene.add(f"held{number}", group="held", batch_key="k")
    await scene.scripts.set_group("1", "held", {"paused": True})
    for number in range(3):
        await scene.add(f"free{number}", group="free", batch_key="k")
        await scene.add(f"other{number}", group="free", batch_key="l")
    return claiming(4, batch={"min_size": 1, "linger_ms": 0})


@scenario("move_to_active", "only held groups stand near the turn of a worker with wishes")
async def _(scene: Scene) -> Call:
    for number in range(10):
        await scene.add(f"a{number}", group=f"g{number}")
        await scene.add(f"b{number}", group=f"g{number}")
    for _ in range(10):
        await scene.claim()
    await scene.scripts.set_group_defaults("d", {"group_concurrency": 1})
    return claiming(1, warm=["k"])
