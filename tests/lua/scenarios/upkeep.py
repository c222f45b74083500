"""Situations of the scripts for upkeep."""

from tests.lua.scenarios.table import CANCEL, Call, age, call, scenario
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene


@scenario("move_due_jobs", "some due, one too late", counts=True)
async def _(scene: Scene) -> Call:
    await scene.add("late", expires_ms=1000)
    await scene.pass_deadlines()
    await scene.add("a", delay_ms=1000)
    await scene.add("b", delay_ms=2000)
    await scene.make_due()
    return call(10)


@scenario("move_stalled_to_wait", "back, canceled, and once too often", counts=True)
async def _(scene: Scene) -> Call:
    await scene.active("a")
    await scene.active("b")
    await scene.scripts.cancel_job("c", "b", CANCEL)
    await scene.active("d", max_stalled=0)
    await scene.end_leases()
    return call(LEASE_MS, INTERVAL_MS, 10)


@scenario("remove_expired", "in every finished state", counts=True)
async def _(scene: Scene) -> Call:
    kept = {"remove_on_complete": age(1000), "remove_on_fail": age(1000)}
    await scene.completed("a", **kept)
    await scene.failed("b", **kept)
    await scene.canceled("c", **kept)
    for job_id, state in (("a", "completed"), ("b", "failed"), ("c", "canceled")):
        await scene.end_retention(job_id, state)
    return call(10)


@scenario("forget_files", "some")
async def _(scene: Scene) -> Call:
    await scene.client.zadd(f"{scene.prefix}sweep", {"a/1-x": 1, "b/1-y": 2})
    return call(["a/1-x", "c/1-z"])


@scenario("create_group", "the first time")
async def _(scene: Scene) -> Call:
    return call("relay")


@scenario("acknowledge", "some")
async def _(scene: Scene) -> Call:
    await scene.add("a", notify=("added",))
    await scene.add("b", notify=("added",))
    await scene.scripts.create_group("relay")
    read = await scene.client.xreadgroup("relay", "me", {scene.queue.keys.outbox: ">"})
    return call("relay", [entry_id.decode() for _, entries in read for entry_id, _ in entries][:1])
