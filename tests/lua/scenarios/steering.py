"""Situations of the scripts for steering."""

from tests.lua.scenarios.table import CANCEL, Call, age, call, scenario
from tests.lua.scene import Scene


@scenario("cancel_job", "a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a", expires_ms=10_000, notify=("canceled",))
    return call("t", "a", CANCEL)


@scenario("cancel_job", "a delayed one that is not kept")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=10_000, remove_on_fail=True)
    return call("t", "a", CANCEL)


@scenario("cancel_job", "a running one")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    return call("t", "a", CANCEL)


@scenario("cancel_job", "one that was canceled already")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    await scene.scripts.cancel_job("c", "a", CANCEL)
    return call("t", "a", CANCEL)


@scenario("cancel_job", "a finished one")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    return call("t", "a", CANCEL)


@scenario("cancel_job", "none")
async def _(scene: Scene) -> Call:
    return call("t", "a", CANCEL)


@scenario("reprocess_job", "a completed one with files and a TTL")
async def _(scene: Scene) -> Call:
    await scene.completed("a", has_files=True, remove_on_complete=age(1000))
    return call("t", "a")


@scenario("reprocess_job", "a failed one")
async def _(scene: Scene) -> Call:
    await scene.failed("a", priority=4)
    return call("t", "a")


@scenario("reprocess_job", "a canceled one")
async def _(scene: Scene) -> Call:
    await scene.canceled("a")
    return call("t", "a")


@scenario("reprocess_job", "a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a")


@scenario("remove_job", "a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a", expires_ms=1000)
    return call("t", "a")


@scenario("remove_job", "a delayed one")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=1000)
    return call("t", "a")


@scenario("remove_job", "a completed one with files")
async def _(scene: Scene) -> Call:
    await scene.completed("a", has_files=True, remove_on_complete=age(1000))
    return call("t", "a")


@scenario("remove_job", "a failed one")
async def _(scene: Scene) -> Call:
    await scene.failed("a")
    return call("t", "a")


@scenario("remove_job", "a running one")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    return call("t", "a")


@scenario("remove_job", "none")
async def _(scene: Scene) -> Call:
    return call("t", "a")


@scenario("promote", "a delayed one")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=100_000, priority=5)
    return call("t", "a")


@scenario("promote", "a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a")


@scenario("change_priority", "of a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a", priority=5)
    await scene.add("b", priority=2)
    return call("t", "a", 2)


@scenario("change_priority", "of a delayed one")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=100_000)
    return call("t", "a", 9)


@scenario("change_priority", "of a running one, to none")
async def _(scene: Scene) -> Call:
    await scene.active("a", priority=4)
    return call("t", "a", 0)


@scenario("change_priority", "of a finished one")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    return call("t", "a", 9)


@scenario("pause", "a queue with work")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", paused=True)


@scenario("pause", "resume")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.pause("p", paused=True)
    return call("t", paused=False)


@scenario("pause", "a queue that was never used")
async def _(scene: Scene) -> Call:
    return call("t", paused=True)


@scenario("set_limits", "all")
async def _(scene: Scene) -> Call:
    return call("t", concurrency=2, rate=(3, 1000), limited_ms=70_000)


@scenario("set_limits", "none any more")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_limits("l", concurrency=2, rate=(3, 1000), limited_ms=70_000)
    return call("t", concurrency=0, rate=(0, 1), limited_ms=0)
