"""Situations of the scripts for adding."""

from typing import Any

import msgspec

from orchestrator.deduplication import Deduplication
from orchestrator.job import JobOptions
from orchestrator.parent import Parent
from tests.lua.scenarios.table import Call, age, call, scenario
from tests.lua.scene import Scene


def adding(title: str, **options: Any) -> None:
    """A scenario that adds the first job of a queue."""

    @scenario("add_jobs", title)
    async def _(scene: Scene) -> Call:
        return call("t", [("new", msgspec.json.encode(JobOptions(**options).header("paint")), b'{"x":[]}')])


adding("a plain job")
adding("a delayed job", delay_ms=50_000)
adding("a job with a priority, before the others", priority=7, lifo=True)
adding("a job with a deadline that tells the relay", expires_ms=90_000, notify=("added", "completed"))


@scenario("add_jobs", "an id that another call made")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", [("a", b'{"n":"paint"}', b"{}")])


@scenario("add_jobs", "its own id, removed in the meantime")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.remove_job("r", "a")
    return call("add-a", [("a", b'{"n":"paint"}', b"{}")])


@scenario("add_jobs", "an id whose record is gone by its TTL")
async def _(scene: Scene) -> Call:
    await scene.completed("a", remove_on_complete=age(1000))
    await scene.end_retention("a", "completed")
    return call("t", [("a", b'{"n":"paint"}', b"{}")])


@scenario("add_jobs", "where somebody else wrote to the stream, with a later id")
async def _(scene: Scene) -> Call:
    await scene.client.xadd(f"{scene.prefix}events", {"e": '{"type":"foreign"}'}, id="9999999999999-0")
    await scene.add("a")
    await scene.client.xadd(f"{scene.prefix}events", {"e": '{"type":"foreign"}'}, id="9999999999999-4294967295")
    await scene.add("b")
    return call("t", [("new", b'{"n":"paint"}', b"{}")])


@scenario("add_jobs", "to a queue with as many as may wait")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=50_000)
    await scene.scripts.set_limits("l", max_waiting=1)
    return call("t", [("new", b'{"n":"paint"}', b"{}")])


@scenario("add_jobs", "to a queue that is being obliterated")
async def _(scene: Scene) -> Call:
    await close(scene)
    return call("t", [("new", b'{"n":"paint"}', b"{}")])


@scenario("add_jobs", "of many callers: new, refused, met, the same id twice, a child, no parent")
async def _(scene: Scene) -> Call:
    await scene.add("there")
    await scene.add("parent")
    await scene.add("held", deduplication=Deduplication("d"))
    await scene.scripts.set_group("g", "g", {"max_waiting": 1})
    parents = [Parent(scene.queue.name, name) for name in ("parent", "nobody")]
    return call(
        "t",
        [
            one("a", notify=("added",)),
            one("b", group="g"),
            one("c", group="g"),
            one("there"),
            one("a"),
            one("d", deduplication=Deduplication("d")),
            one("e", parent=parents[0]),
            one("f", parent=parents[1]),
            one("g", delay_ms=50_000),
            one("h", priority=2, lifo=True),
        ],
    )


@scenario("add_jobs", "of many callers, to a queue with room for one more")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.set_limits("l", max_waiting=2)
    return call("t", [one("a"), one("b"), one("c"), one("b")])


@scenario("add_jobs", "some are there already, one was removed, all by this call")
async def _(scene: Scene) -> Call:
    jobs = [one("a"), one("b"), one("c")]
    await scene.scripts.add_jobs("t", jobs)
    await scene.scripts.remove_job("r", "b")
    return call("t", jobs)


@scenario("add_bulk", "new ones of every kind")
async def _(scene: Scene) -> Call:
    return call(
        "t", [one("a"), one("b", delay_ms=50_000), one("c", priority=3, lifo=True), one("d", notify=("added",))]
    )


@scenario("add_bulk", "some are there already")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.remove_job("r", await scene.add("gone"))
    scene.definitions.pop("gone")
    return call("t", [one("a"), one("b"), one("gone")])


@scenario("add_bulk", "with deduplication ids, held and new")
async def _(scene: Scene) -> Call:
    held, new = Deduplication("held"), Deduplication("new")
    await scene.add("a", deduplication=held)
    await scene.scripts.set_limits("l", max_waiting=2)
    return call("t", [one("b", deduplication=held), one("c", deduplication=new), one("d", deduplication=new)])


@scenario("add_bulk", "more than may wait")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.set_limits("l", max_waiting=2)
    return call("t", [one("a"), one("b"), one("c")])


@scenario("add_bulk", "to a queue that is being obliterated")
async def _(scene: Scene) -> Call:
    await close(scene)
    return call("t", [one("a")])


@scenario("fan_out", "to a queue that is being obliterated")
async def _(scene: Scene) -> Call:
    await close(scene)
    return call("t", "new", b'{"n":"delivery"}', b"{}")


@scenario("fan_out", "a delivery")
async def _(scene: Scene) -> Call:
    return call("t", "new", msgspec.json.encode(JobOptions(attempts=3).header("delivery")), b'{"x":[]}')


@scenario("fan_out", "a delivery that another relay has made")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a", b'{"n":"delivery"}', b"{}")


def one(job_id: str, **options: Any) -> tuple[str, bytes, bytes]:
    """A job of a bulk."""
    return job_id, msgspec.json.encode(JobOptions(**options).header("paint")), b'{"x":[]}'


async def close(scene: Scene) -> None:
    """Begin to obliterate the queue."""
    await scene.add("a")
    epoch = (await scene.meta())["epoch"]
    await scene.scripts.obliterate(epoch, force=False, limit=1, closing_ms=600_000)
