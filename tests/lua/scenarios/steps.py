"""Situations of jobs that go on in steps, and of the limits on starts that they ask for."""

from orchestrator.scripts import Finish
from tests.lua.scenarios.table import CANCEL, ERROR, Call, call, scenario
from tests.lua.scenarios.working import ending, finishing
from tests.lua.scene import Scene

KEEP = b'{"ca":3600,"fc":0}'

ending("goes on later", "delayed", b"{}", 5000, priority=3)
ending("goes on at once, behind the others", "delayed", b"{}", 0)
ending("goes on from its old place", "waiting", b"{}")
ending("met a limit of an outside API", "rate_limited", b"{}", 70_000)
ending("met a limit of an outside API that is over", "rate_limited", b"{}", 0)
ending("met a limit after it was canceled", "rate_limited", b"{}", 70_000, canceled=True)
ending("wanted to go on later, but was canceled", "delayed", b"{}", 5000, canceled=True)
ending("failed, with a stack, again at once", "failed", ERROR + b"\npaint.py:3 paint\npaint.py:9 draw", 0, attempts=2)
ending("failed for good, with a stack", "failed", ERROR + b"\npaint.py:3 paint", -1)


@scenario("move_to_finished", "met a limit that ends before one that is there")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a")
    await scene.scripts.set_limits("l", limited_ms=900_000)
    return finishing(Finish("a", claim.lease, "rate_limited", b"{}", 5000))


@scenario("move_to_finished", "the worker says how long jobs are kept that do not say it themselves")
async def _(scene: Scene) -> Call:
    ends = [
        Finish("plain", (await scene.active("plain")).lease, "completed", b"1"),
        Finish("own", (await scene.active("own", remove_on_complete=60)).lease, "completed", b"1"),
        Finish("all", (await scene.active("all", remove_on_complete=False)).lease, "completed", b"1"),
        Finish("bad", (await scene.active("bad")).lease, "failed", ERROR),
    ]
    made = finishing(*ends)
    return Call((*made.args, KEEP), made.fields)


@scenario("move_to_active", "a job with a checkpoint")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a")
    await scene.scripts.save_checkpoint("a", claim.lease, 1, b'{"step":2}')
    await scene.finish(claim, "waiting", b"{}")
    return call("t", "lane:0", "worker", 60_000, 1000, 1)


@scenario("save_checkpoint", "a step")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a", notify=("checkpoint",))
    await scene.scripts.save_checkpoint("a", claim.lease, 1, b'{"step":1}')
    return call("a", claim.lease, 2, b'{"step":2}')


@scenario("save_checkpoint", "a number that was seen already, of a canceled job")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a")
    await scene.scripts.save_checkpoint("a", claim.lease, 2, b"2")
    await scene.scripts.cancel_job("c", "a", CANCEL)
    return call("a", claim.lease, 1, b"1")


@scenario("save_checkpoint", "of a lost lease")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    return call("a", "wrong", 1, b"1")


@scenario("reprocess_job", "a failed one with a checkpoint and a stack")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a")
    await scene.scripts.save_checkpoint("a", claim.lease, 1, b'{"step":2}')
    await scene.finish(claim, "failed", ERROR + b"\npaint.py:3 paint")
    return call("t", "a")


@scenario("reprocess_job", "a completed one with a checkpoint")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a")
    await scene.scripts.save_checkpoint("a", claim.lease, 1, b'{"step":2}')
    await scene.finish(claim)
    return call("t", "a")


@scenario("get_meta", "of numbers and texts, and of what is not there")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.set_limits("s", concurrency=3)
    return call("epoch", "concurrency", "rate_max")


@scenario("get_limits", "of a queue without any")
async def _(scene: Scene) -> Call:
    return call()


@scenario("get_limits", "all of them")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_limits("l", concurrency=1, rate=(3, 1000))
    await scene.active("a")
    return call()
