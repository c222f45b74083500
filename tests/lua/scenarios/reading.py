"""Situations of the scripts for reading."""

from orchestrator.job import JobState
from tests.lua.scenarios.table import Call, call, scenario
from tests.lua.scene import Scene


@scenario("get_job", "with its history")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    return call("a", history=True)


@scenario("get_job", "that was retried after it had completed")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    await scene.scripts.reprocess_job("r", "a")
    return call("a", history=True)


@scenario("get_job", "that has only waited")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=10_000)
    return call("a", history=True)


@scenario("get_job", "that is not there")
async def _(scene: Scene) -> Call:
    return call("a", history=True)


@scenario("get_jobs", "of all states")
async def _(scene: Scene) -> Call:
    await every_state(scene)
    return call(list(JobState), 0, 100)


@scenario("get_recent", "over all states")
async def _(scene: Scene) -> Call:
    await every_state(scene)
    return call(2, 50)


@scenario("get_counts", "of all states")
async def _(scene: Scene) -> Call:
    await every_state(scene)
    return call()


@scenario("get_events", "from the start")
async def _(scene: Scene) -> Call:
    await every_state(scene)
    return call("0-0", 3)


@scenario("get_due_files", "some")
async def _(scene: Scene) -> Call:
    await scene.client.zadd(f"{scene.prefix}sweep", {"a/1-x": 1, "b/1-y": 2})
    return call(1)


async def every_state(scene: Scene) -> None:
    """One job in each state; of jobs that finished in the same millisecond the greater id counts as newer."""
    await scene.completed("1-done")
    await scene.failed("2-failed")
    await scene.canceled("3-canceled")
    await scene.active("active")
    await scene.add("waiting", priority=3)
    await scene.add("delayed", delay_ms=50_000)
