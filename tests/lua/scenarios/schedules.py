"""Situations of the scripts for schedules."""

from typing import Any

from orchestrator.schedule import JobTemplate, RepeatOptions, Slots
from orchestrator.scripts import Finish
from tests.lua.scenarios.adding import close
from tests.lua.scenarios.table import CANCEL, Call, call, scenario
from tests.lua.scenarios.working import claiming, finishing
from tests.lua.scene import Scene
from tests.lua.scheduling import pass_slots, slots_from, template_of, upsert

EVERY = RepeatOptions(every_ms=60_000)
CRON = RepeatOptions(cron="*/5 * * * *")


def upserting(title: str, *before: RepeatOptions, again: JobTemplate | None = None, **options: Any) -> None:
    """A scenario that upserts a schedule, after others of the same id if any."""

    @scenario("upsert_job_scheduler", title)
    async def _(scene: Scene) -> Call:
        for repeat in before:
            await upsert(scene, "s", repeat)
        repeat = RepeatOptions(**options)
        slots = await slots_from(scene, repeat) if repeat.cron else None
        return call("t", "s", template_of("s", again), repeat, slots)


upserting("a new one that begins at once", every_ms=60_000)
upserting("a new one that begins later", every_ms=60_000, start_at=7_000_000_000_000, limit=3)
upserting("a new one that began long ago", every_ms=86_400_000, start_at=1_000_000_000_000)
upserting("a new one by cron", cron="*/5 * * * *", tz="Europe/Berlin")
upserting("a new one by cron and at once", cron="*/5 * * * *", immediately=True)
upserting("a new one that is over already", every_ms=60_000, end_at=1_000_000_000_000)
upserting("the same again", EVERY, every_ms=60_000)
upserting("the same cron again", CRON, cron="*/5 * * * *")
upserting("another template while its job waits", EVERY, again=JobTemplate("other", [1]), every_ms=60_000)
upserting("another timing while its job waits", EVERY, cron="*/5 * * * *")
upserting("a limit that is reached already", EVERY, every_ms=60_000, limit=1)
upserting("a higher limit after it was reached", RepeatOptions(every_ms=60_000, limit=1), every_ms=60_000, limit=2)
upserting("a later end after it was reached", RepeatOptions(cron="*/5 * * * *", end_at=10_000_000), cron="*/5 * * * *")


@scenario("upsert_job_scheduler", "one whose slot has come")
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", CRON)
    await pass_slots(scene, "s", 1)
    return call("t", "s", template_of("s"), CRON, await slots_from(scene, CRON))


@scenario("upsert_job_scheduler", "slots that have passed when they arrive")
async def _(scene: Scene) -> Call:
    return call("t", "s", template_of("s"), CRON, Slots(1_000_000_000_000, [1_000_000_300_000], False))


@scenario("upsert_job_scheduler", "one that is to begin at once, of a full queue")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.queue.set_max_waiting(1)
    at_once = RepeatOptions(every_ms=60_000, immediately=True)
    return call("t", "s", template_of("s"), at_once, None)


@scenario("upsert_job_scheduler", "of a queue that is being obliterated")
async def _(scene: Scene) -> Call:
    await close(scene)
    repeat = RepeatOptions(every_ms=60_000)
    return call("t", "s", template_of("s"), repeat, None)


@scenario("upsert_job_scheduler", "one that begins at once, without room for its job")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.set_limits("limits", max_waiting=1)
    return call("t", "s", template_of("s"), RepeatOptions(every_ms=60_000), None)


@scenario("remove_job_scheduler", "with a job that waits")
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", EVERY)
    await upsert(scene, "other", EVERY)
    return call("t", "s")


@scenario("remove_job_scheduler", "with a job that runs")
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", EVERY)
    await scene.claim()
    return call("t", "s")


@scenario("remove_job_scheduler", "that needs slots")
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", CRON, keep_slots=2)
    return call("t", "s")


@scenario("remove_job_scheduler", "that is not there")
async def _(scene: Scene) -> Call:
    return call("t", "s")


@scenario("get_job_scheduler", "one by cron", counts=True)
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", CRON)
    return call("s")


@scenario("get_job_scheduler", "that is not there", counts=True)
async def _(scene: Scene) -> Call:
    return call("s")


@scenario("get_job_schedulers", "a page")
async def _(scene: Scene) -> Call:
    for name in "abc":
        await upsert(scene, name, EVERY)
    return call(1, 2)


@scenario("get_hungry_schedules", "one of two")
async def _(scene: Scene) -> Call:
    await upsert(scene, "full", CRON)
    await upsert(scene, "hungry", CRON, keep_slots=2)
    return call(10)


@scenario("fill_schedule", "that knows two slots", counts=True)
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", CRON, keep_slots=2)
    return await filling(scene)


@scenario("fill_schedule", "that knows none", counts=True)
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", CRON, keep_slots=2)
    await pass_slots(scene, "s", 2)
    await scene.claim()
    return await filling(scene)


@scenario("fill_schedule", "that ends with these slots", counts=True)
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", CRON, keep_slots=2)
    return await filling(scene, keep=3)


@scenario("fill_schedule", "that has changed since")
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", CRON, keep_slots=2)
    found = await filling(scene)
    await upsert(scene, "s", CRON)
    return found


async def filling(scene: Scene, keep: int = 32) -> Call:
    """A call that gives the only hungry schedule its slots."""
    (hungry,) = await scene.scripts.get_hungry_schedules(10)
    known_to, slots, _last = hungry.repeat.slots_after(hungry.known_to)
    return call(hungry.id, hungry.version, Slots(known_to, slots[:keep], keep < 32))


@scenario("move_to_active", "a schedule is due")
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", EVERY)
    await scene.claim()
    await pass_slots(scene, "s", 3)
    return claiming()


@scenario("move_to_active", "a schedule is due whose job before waits")
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", EVERY)
    await pass_slots(scene, "s", 1)
    await scene.scripts.pause("p", paused=True)
    return claiming()


@scenario("move_to_active", "a schedule runs out of slots")
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", CRON, keep_slots=2)
    await pass_slots(scene, "s", 2)
    return claiming()


@scenario("move_to_finished", "a schedule is due, its job before was canceled")
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", RepeatOptions(every_ms=60_000, limit=2))
    (claim,) = (await scene.claim()).claims
    await scene.scripts.cancel_job("c", claim.job.id, CANCEL)
    await pass_slots(scene, "s", 1)
    return finishing(Finish(claim.job.id, claim.lease, "canceled", b"{}"))


@scenario("move_due_jobs", "schedules are due", counts=True)
async def _(scene: Scene) -> Call:
    for name in "abc":
        await upsert(scene, name, EVERY)
    await scene.claim(3)
    for name in "abc":
        await pass_slots(scene, name, 2)
    return call(10)


@scenario("move_due_jobs", "a schedule is due whose record somebody has deleted", counts=True)
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", EVERY)
    await pass_slots(scene, "s", 1)
    await scene.client.delete(f"{scene.prefix}schedule:s")
    return call(10)


@scenario("move_due_jobs", "a schedule is due, and as many jobs wait as may", counts=True)
async def _(scene: Scene) -> Call:
    await upsert(scene, "s", EVERY)
    await pass_slots(scene, "s", 1)
    await scene.scripts.set_limits("l", max_waiting=1)
    return call(10)
