"""Situations of the scripts for monitoring, and of counting in the others."""

from orchestrator.scripts import Finish
from tests.lua.scenarios.table import ERROR, Call, call, scenario
from tests.lua.scenarios.working import finishing
from tests.lua.scene import Scene


@scenario("get_metrics", "of the last hour")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    await scene.pass_minute()
    await scene.completed("b")
    return call("completed", -1, 0)


@scenario("get_metrics", "of a queue that never counted")
async def _(scene: Scene) -> Call:
    return call("completed", 5, 7)


@scenario("get_stats", "of a queue with all it can have")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    await scene.failed("b")
    await scene.add("due", delay_ms=50_000)
    await scene.make_due()
    await scene.scripts.heartbeat("w", b'{"id":"w"}')
    await scene.scripts.pause("p", paused=True)
    return call()


@scenario("get_stats", "of an empty queue")
async def _(scene: Scene) -> Call:
    return call()


@scenario("set_metrics", "off")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", enabled=False)


@scenario("set_metrics", "on again")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_metrics("off", enabled=False)
    return call("t", enabled=True)


@scenario("heartbeat", "the first of a worker")
async def _(scene: Scene) -> Call:
    return call("w", b'{"id":"w"}')


@scenario("heartbeat", "another, and one worker was lost", counts=True)
async def _(scene: Scene) -> Call:
    await scene.scripts.heartbeat("w", b'{"id":"w"}')
    await scene.client.zadd(f"{scene.prefix}workers", {"lost": 1})
    return call("w", b'{"id":"w","active":1}')


@scenario("heartbeat", "the last of a worker")
async def _(scene: Scene) -> Call:
    await scene.scripts.heartbeat("w", b'{"id":"w"}')
    return call("w", b"")


@scenario("get_workers", "some, and one whose record is gone")
async def _(scene: Scene) -> Call:
    for name in "ab":
        await scene.scripts.heartbeat(name, b'{"id":"%s","name":"n","queue":"q","concurrency":1}' % name.encode())
    await scene.client.delete(f"{scene.prefix}worker:a")
    return call(0, 10)


@scenario("move_to_finished", "another minute has begun")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    claim = await scene.active("b", attempts=2)
    await scene.pass_minute()
    return finishing(Finish("b", claim.lease, "failed", ERROR, 0))


@scenario("add_jobs", "to a queue that does not count")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_metrics("off", enabled=False)
    return call("t", [("new", b'{"n":"paint"}', b"{}")])
