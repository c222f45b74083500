"""Situations at the edges: nothing there yet, nobody of that name, a limit that somebody set by hand."""

from orchestrator.job import KeepJobs
from orchestrator.scripts import Finish, Report
from tests.lua.scenarios.table import CANCEL, Call, age, call, scenario
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene


@scenario("get_events", "of a queue that has none yet")
async def _(scene: Scene) -> Call:
    return call("0-0", 10)


@scenario("get_recent", "of a queue that nobody has used")
async def _(scene: Scene) -> Call:
    return call(0, 10)


@scenario("pause", "a queue that is paused already")
async def _(scene: Scene) -> Call:
    await scene.scripts.pause("p", paused=True)
    return call("t", paused=True)


@scenario("move_stalled_to_wait", "a queue that nobody has used")
async def _(scene: Scene) -> Call:
    return call(LEASE_MS, INTERVAL_MS, 10)


@scenario("move_to_active", "a limit until later")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.set_limits("l", limited_ms=500_000)
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 1)


@scenario("get_events", "after one that the reader has")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    ((first, _),) = await scene.client.xrange(scene.queue.keys.events)
    await scene.add("b")
    return call(first.decode(), 10)


@scenario("move_to_active", "a copy that comes after the lane's next call")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.move_to_active("2-b", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 0)
    return call("1-a", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 1)


@scenario("move_to_finished", "a copy that comes after the lane's next call")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a")
    await scene.scripts.move_to_active("2-b", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 0)
    ending = Finish("a", claim.lease, "completed", b"1")
    return call("1-a", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 1, [ending])


@scenario("move_to_active", "again after a long absence of everybody")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    await scene.end_leases()
    await scene.change_meta(looked_at=int((await scene.meta())["looked_at"]) - LEASE_MS)
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 1)


@scenario("move_to_active", "a grace that a caller with longer leases gave")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a")
    await scene.change_meta(grace_until=claim.job.created_at + 100 * LEASE_MS)
    return call("t", "lane:0", "worker", 2000, INTERVAL_MS, 1)


@scenario("update_progress", "so soon after the last that the relay need not hear it")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a", notify=("progress",))
    await scene.scripts.update_progress("a", claim.lease, Report(1, "", b"1"))
    return call("a", claim.lease, Report(2, "", b"2"))


@scenario("move_to_finished", "kept for a shorter time than a lost reply may take")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a", remove_on_complete=age(30))
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 0, [Finish("a", claim.lease, "completed", b"1")])


@scenario("move_to_finished", "beyond the count is one whose keys have ended")
async def _(scene: Scene) -> Call:
    await scene.completed("a", remove_on_complete=age(1000))
    await scene.end_retention("a", "completed")
    claim = await scene.active("b", remove_on_complete=KeepJobs(count=1))
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 0, [Finish("b", claim.lease, "completed", b"1")])


@scenario("move_to_finished", "beyond the count are one whose keys have ended and one that lives")
async def _(scene: Scene) -> Call:
    await scene.completed("a", remove_on_complete=age(1000))
    await scene.completed("b")
    await scene.end_retention("a", "completed")
    claim = await scene.active("c", remove_on_complete=KeepJobs(count=1))
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 0, [Finish("c", claim.lease, "completed", b"1")])


@scenario("move_to_finished", "beyond the count is one that lives, before one whose keys have ended")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    await scene.completed("b", remove_on_complete=age(1000))
    await scene.client.zadd(f"{scene.prefix}completed", {"a": 1})
    await scene.end_retention("b", "completed")
    claim = await scene.active("c", remove_on_complete=KeepJobs(count=1))
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 0, [Finish("c", claim.lease, "completed", b"1")])


@scenario("obliterate", "one whose keys have ended", counts=True)
async def _(scene: Scene) -> Call:
    await scene.completed("a", remove_on_complete=age(1000))
    await scene.end_retention("a", "completed")
    epoch = (await scene.meta())["epoch"]
    return call(epoch, force=False, limit=100, closing_ms=60_000)


@scenario("add_jobs", "a group that is full")
async def _(scene: Scene) -> Call:
    await scene.add("a", group="g")
    await scene.scripts.set_group("1", "g", {"max_waiting": 1})
    return call("t", [("b", b'{"n":"paint","g":"g"}', b"1")])


@scenario("add_bulk", "a group that has room for one of two")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_group("1", "g", {"max_waiting": 1})
    return call("t", [(job_id, b'{"n":"paint","g":"g"}', b"1") for job_id in "ab"])


@scenario("get_position", "between a held group and one that comes later")
async def _(scene: Scene) -> Call:
    for group in "abc":
        await scene.add(group, group=group)
    await scene.scripts.set_group("1", "b", {"paused": True})
    await scene.client.hset(f"{scene.prefix}ginfo:c", "tag", "9.5")
    await scene.client.zadd(f"{scene.prefix}groups", {"b": 0.5, "c": 9.5})
    return call("a")


@scenario("move_to_active", "a batch that is large enough at once")
async def _(scene: Scene) -> Call:
    for job_id in "abc":
        await scene.add(job_id, batch_key="b")
    wishes = b'{"batch":{"min_size":2,"linger_ms":500000}}'
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 2, wishes)


@scenario("cancel_job", "one that is beyond the count itself, for its end is not the newest")
async def _(scene: Scene) -> Call:
    await scene.canceled("kept", remove_on_fail=1)
    await scene.client.zadd(f"{scene.prefix}canceled", {"kept": 4_000_000_000_000})
    await scene.add("a", remove_on_fail=1)
    return call("t", "a", CANCEL)


for _name in ("promote", "cancel_job", "change_delay", "change_priority", "reprocess_job", "remove_job"):

    @scenario(_name, "nobody of that id")
    async def _(scene: Scene, name: str = _name) -> Call:
        more = {"cancel_job": (CANCEL,), "change_delay": (500,), "change_priority": (3,)}
        return call("t", "nobody", *more.get(name, ()))
