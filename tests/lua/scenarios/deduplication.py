"""Situations in which a deduplication key is held, met, handed on or freed."""

from typing import Any

import msgspec

from orchestrator.deduplication import Deduplication
from orchestrator.job import JobOptions
from orchestrator.scripts import Finish
from tests.lua.scenarios.table import CANCEL, Call, call, scenario
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene

SIMPLE = Deduplication("k")
THROTTLE = Deduplication("k", 60_000)
DEBOUNCE = Deduplication("k", 60_000, extend=True, replace=True)
KEEP_LAST = Deduplication("k", keep_last_if_active=True)


def adding(deduplication: Deduplication, **options: Any) -> Call:
    """A call that adds a job of a key."""
    header = JobOptions(deduplication=deduplication, **options).header("paint")
    return call("t", [("new", msgspec.json.encode(header), b"2")])


def finishing(claim: Any) -> Call:
    """A call that completes an attempt and claims what comes then."""
    ending = Finish(claim.job.id, claim.lease, "completed", b"1", -1)
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, 1, [ending])


async def keep_back(scene: Scene, **options: Any) -> Any:
    """A running job, and one kept back until its end; returns the claim of the first."""
    claim = await scene.active("a", deduplication=KEEP_LAST, **options)
    header = JobOptions(deduplication=KEEP_LAST, priority=3, delay_ms=70_000).header("paint")
    await scene.scripts.add_jobs("kept", [("next", msgspec.json.encode(header), b"3")])
    return claim


for title, deduplication in {"simple": SIMPLE, "throttle": THROTTLE, "debounce": DEBOUNCE}.items():

    @scenario("add_jobs", f"the first of a deduplication id, {title}")
    async def _(scene: Scene, deduplication: Deduplication = deduplication) -> Call:
        return adding(deduplication)

    @scenario("add_jobs", f"a deduplication id that a waiting job holds, {title}")
    async def _(scene: Scene, deduplication: Deduplication = deduplication) -> Call:
        await scene.add("a", deduplication=deduplication)
        return adding(deduplication)


@scenario("add_jobs", "a deduplication id that outlives its job")
async def _(scene: Scene) -> Call:
    await scene.completed("a", deduplication=THROTTLE, remove_on_complete=True)
    return adding(THROTTLE)


@scenario("add_jobs", "in place of a delayed one, into a full group")
async def _(scene: Scene) -> Call:
    await scene.queue.set_group_max_waiting("g", 1)
    await scene.add("first", group="g")
    await scene.add("a", deduplication=DEBOUNCE, delay_ms=50_000)
    return adding(DEBOUNCE, group="g")


@scenario("add_jobs", "in place of a delayed one")
async def _(scene: Scene) -> Call:
    await scene.add("a", deduplication=DEBOUNCE, delay_ms=50_000, expires_ms=90_000)
    return adding(DEBOUNCE, delay_ms=50_000)


@scenario("add_jobs", "kept back until the running one ends")
async def _(scene: Scene) -> Call:
    await scene.active("a", deduplication=KEEP_LAST)
    return adding(KEEP_LAST, priority=4)


@scenario("add_jobs", "kept back instead of an older one")
async def _(scene: Scene) -> Call:
    await keep_back(scene)
    return adding(KEEP_LAST)


@scenario("move_to_finished", "the holder of a deduplication key")
async def _(scene: Scene) -> Call:
    return finishing(await scene.active("a", deduplication=SIMPLE))


@scenario("move_to_finished", "the holder of a throttle key")
async def _(scene: Scene) -> Call:
    return finishing(await scene.active("a", deduplication=THROTTLE, remove_on_complete=True))


@scenario("move_to_finished", "one for whose end another was kept back")
async def _(scene: Scene) -> Call:
    return finishing(await keep_back(scene))


@scenario("move_to_finished", "one for whose end another was kept back whose id is taken now")
async def _(scene: Scene) -> Call:
    claim = await keep_back(scene)
    await scene.add("next")
    return finishing(claim)


@scenario("cancel_job", "a waiting holder that is not kept")
async def _(scene: Scene) -> Call:
    await scene.add("a", deduplication=SIMPLE, remove_on_fail=True)
    return call("t", "a", CANCEL)


@scenario("remove_job", "a holder that failed once, for whose end another was kept back")
async def _(scene: Scene) -> Call:
    claim = await keep_back(scene, attempts=2)
    await scene.finish(claim, "failed", b'{"kind":"transient","message":"","details":{}}', 50_000)
    return call("t", "a")


@scenario("reprocess_job", "one whose deduplication key is free")
async def _(scene: Scene) -> Call:
    await scene.completed("a", deduplication=SIMPLE)
    return call("t", "a")


@scenario("reprocess_job", "one whose deduplication key another holds")
async def _(scene: Scene) -> Call:
    await scene.completed("a", deduplication=SIMPLE)
    await scene.add("b", deduplication=SIMPLE)
    return call("t", "a")


@scenario("reprocess_job", "one whose throttle key has outlived it")
async def _(scene: Scene) -> Call:
    await scene.completed("a", deduplication=THROTTLE)
    return call("t", "a")


@scenario("remove_deduplication_key", "that is held")
async def _(scene: Scene) -> Call:
    await scene.add("a", deduplication=SIMPLE)
    return call("t", "k", "")


@scenario("remove_deduplication_key", "that another job holds")
async def _(scene: Scene) -> Call:
    await scene.add("a", deduplication=SIMPLE)
    return call("t", "k", "b")


@scenario("remove_deduplication_key", "with a job kept back")
async def _(scene: Scene) -> Call:
    await keep_back(scene)
    return call("t", "k", "a")


@scenario("add_jobs", "to be kept back, but the key that it meets has a time of its own")
async def _(scene: Scene) -> Call:
    await scene.active("a", deduplication=THROTTLE)
    return adding(KEEP_LAST)
