"""Situations of the scripts for adding."""

from typing import Any

import msgspec

from orchestrator.job import JobOptions
from tests.lua.scenarios.table import Call, age, call, scenario
from tests.lua.scene import Scene


def adding(title: str, **options: Any) -> None:
    """A scenario that adds the first job of a queue."""

    @scenario("add_job", title)
    async def _(scene: Scene) -> Call:
        return call("t", "new", msgspec.json.encode(JobOptions(**options).header("paint")), b'{"x":[]}')


adding("a plain job")
adding("a delayed job", delay_ms=50_000)
adding("a job with a priority, before the others", priority=7, lifo=True)
adding("a job with a deadline that tells the relay", expires_ms=90_000, notify=("added", "completed"))


@scenario("add_job", "an id that another call made")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a", b'{"n":"paint"}', b"{}")


@scenario("add_job", "its own id, removed in the meantime")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.remove_job("r", "a")
    return call("add-a", "a", b'{"n":"paint"}', b"{}")


@scenario("add_job", "an id whose record is gone by its TTL")
async def _(scene: Scene) -> Call:
    await scene.completed("a", remove_on_complete=age(1000))
    await scene.end_retention("a", "completed")
    return call("t", "a", b'{"n":"paint"}', b"{}")


@scenario("fan_out", "a delivery")
async def _(scene: Scene) -> Call:
    return call("t", "new", msgspec.json.encode(JobOptions(attempts=3).header("delivery")), b'{"x":[]}')


@scenario("fan_out", "a delivery that another relay has made")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a", b'{"n":"delivery"}', b"{}")
