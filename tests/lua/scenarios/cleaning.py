"""Situations of the scripts that move or remove many jobs."""

from orchestrator.scripts import Finish
from tests.lua.scenarios.table import Call, age, call, scenario
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene


@scenario("change_delay", "of a delayed one, to be the first")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=50_000_000)
    await scene.add("b", delay_ms=40_000_000)
    return call("t", "a", 1000_000)


@scenario("change_delay", "of a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a", 1000)


@scenario("promote_jobs", "all but one, with their priorities")
async def _(scene: Scene) -> Call:
    for number in range(3):
        await scene.add(f"j{number}", delay_ms=50_000 + number, priority=number)
    return call("t", 2)


@scenario("retry_jobs", "the oldest failed ones")
async def _(scene: Scene) -> Call:
    for number in range(3):
        await scene.failed(f"j{number}", priority=number)
    return call("t", "failed", 2, "")


@scenario("retry_jobs", "of a time when there was none")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    return call("t", "completed", 2, "1")


@scenario("retry_jobs", "a record that has just ended")
async def _(scene: Scene) -> Call:
    await scene.completed("a", remove_on_complete=age(1000))
    await scene.completed("b", has_files=True)
    await scene.end_retention("a", "completed")
    return call("t", "completed", 2, "")


@scenario("drain", "waiting ones")
async def _(scene: Scene) -> Call:
    for number in range(3):
        await scene.add(f"j{number}", expires_ms=90_000)
    await scene.add("later", delay_ms=50_000)
    return call("t", "waiting", 2)


@scenario("drain", "delayed ones")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.add("later", delay_ms=50_000)
    return call("t", "delayed", 2)


@scenario("clean", "completed ones with files")
async def _(scene: Scene) -> Call:
    for number in range(3):
        await scene.completed(f"j{number}", has_files=True, remove_on_complete=age(1000))
    await scene.end_retention("j0", "completed")
    return call("t", "completed", 0, 2, 0, "")


@scenario("clean", "failed ones that are too young")
async def _(scene: Scene) -> Call:
    await scene.failed("a")
    return call("t", "failed", 0, 2, 100_000, "")


@scenario("clean", "waiting ones, behind those that were kept")
async def _(scene: Scene) -> Call:
    for number in range(4):
        await scene.add(f"j{number}")
    return call("t", "waiting", 1, 2, 0, "")


@scenario("obliterate", "every state", counts=True)
async def _(scene: Scene) -> Call:
    await some_of_all(scene)
    return call(await epoch(scene), force=True, limit=100, closing_ms=60_000)


@scenario("obliterate", "running jobs without force")
async def _(scene: Scene) -> Call:
    await some_of_all(scene)
    return call(await epoch(scene), force=False, limit=100, closing_ms=60_000)


@scenario("obliterate", "another life of the queue")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("1", force=True, limit=100, closing_ms=60_000)


@scenario("forget_keys", "all of a closed queue", counts=True)
async def _(scene: Scene) -> Call:
    await some_of_all(scene)
    life = await epoch(scene)
    await scene.scripts.obliterate(life, force=True, limit=100, closing_ms=60_000)
    return call(life, ["outbox", "rate", "gone:active", "sweep", "meta"])


@scenario("forget_keys", "of a queue that is not closed")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    await scene.scripts.remove_job("r", "a")
    return call(await epoch(scene), ["events", "meta"])


@scenario("forget_keys", "of a queue with a job")
async def _(scene: Scene) -> Call:
    for number in range(3):
        await scene.add(f"j{number}")
    life = await epoch(scene)
    await scene.scripts.obliterate(life, force=True, limit=2, closing_ms=60_000)
    return call(life, ["events", "wait", "meta"])


@scenario("trim_events", "to the newest", counts=True)
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    return call(1)


@scenario("remove_expired", "what a finish left beyond the count", counts=True)
async def _(scene: Scene) -> Call:
    for number in range(14):
        await scene.completed(f"j{number:02}")
    await scene.completed("last", remove_on_complete=1)
    return call(10)


@scenario("remove_expired", "what a finish left, and the oldest that stays is gone", counts=True)
async def _(scene: Scene) -> Call:
    for number in range(14):
        await scene.completed(f"j{number:02}")
    await scene.completed("last", remove_on_complete=1)
    await scene.scripts.remove_job("r", "last")
    return call(10)


@scenario("move_to_finished", "beyond a count, where another finish has left more to the duty")
async def _(scene: Scene) -> Call:
    for number in range(24):
        await scene.completed(f"j{number:02}")
    await scene.completed("last", remove_on_complete=1)
    claim = await scene.active("more", remove_on_complete=4)
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 0, [Finish("more", claim.lease, "completed", b"1")])


@scenario("clean", "waiting ones that are too young")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "waiting", 0, 2, 100_000, "")


@scenario("set_limits", "on what may wait")
async def _(scene: Scene) -> Call:
    return call("t", max_waiting=3)


@scenario("get_counts_per_priority", "of some")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.add("b", priority=3)
    return call([0, 1, 3])


async def some_of_all(scene: Scene) -> None:
    """A job in each state."""
    await scene.completed("done", has_files=True, remove_on_complete=age(1000))
    await scene.failed("bad", notify=("failed",))
    await scene.canceled("canceled")
    await scene.active("active")
    await scene.add("waiting", expires_ms=90_000)
    await scene.add("delayed", delay_ms=50_000)


async def epoch(scene: Scene) -> str:
    """The life of the queue."""
    return str((await scene.meta())["epoch"])
