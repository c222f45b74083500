"""Schedules in a known position: their time is moved by hand, as a scene moves the time of jobs."""

from orchestrator.job import JobOptions
from orchestrator.schedule import JobScheduler, JobTemplate, RepeatOptions, Slots
from tests.lua.scene import Scene


def template_of(scheduler_id: str, template: JobTemplate | None = None) -> tuple[bytes, bytes]:
    """What `upsert_job_scheduler` sends of a template."""
    return (template or JobTemplate("paint", {"x": 1})).encode(scheduler_id, JobOptions())


async def slots_from(scene: Scene, repeat: RepeatOptions) -> Slots:
    """The next slots of a cron, by the server's clock."""
    now, _ = await scene.scripts.get_job_scheduler("any")
    return repeat.slots_after(now)


async def upsert(
    scene: Scene,
    scheduler_id: str,
    repeat: RepeatOptions,
    template: JobTemplate | None = None,
    *,
    keep_slots: int | None = None,
) -> JobScheduler:
    """Make or change a schedule; of its slots only so many are told."""
    slots = await slots_from(scene, repeat) if repeat.cron else None
    if slots is not None and keep_slots is not None:
        slots = Slots(slots.known_to, slots.slots[:keep_slots], False)
    encoded = template_of(scheduler_id, template)
    made = await scene.scripts.upsert_job_scheduler(scene.token(), scheduler_id, encoded, repeat, slots)
    assert made is not None
    return made


async def pass_slots(scene: Scene, scheduler_id: str, count: int, late_ms: int = 0) -> list[int]:
    """So many of its slots have come, the last of them half a period and `late_ms` ago; returns these."""
    key = f"{scene.prefix}schedule:{scheduler_id}"
    record = {name.decode(): value.decode() for name, value in (await scene.client.hgetall(key)).items()}
    slots = [int(slot) for slot in record.get("slots", "").split(",") if slot]
    if "every_ms" in record:
        slots = [int(record["at"]) + k * int(record["every_ms"]) for k in range(count + 2)]
    now, _ = await scene.scripts.get_job_scheduler(scheduler_id)
    period = int(record["every_ms"]) if "every_ms" in record else (slots[1] - slots[0] if len(slots) > 1 else 60_000)
    shift = slots[count - 1] - now + period // 2 + late_ms
    moved = {"at": str(int(record["at"]) - shift)}
    if "cron" in record:
        moved["slots"] = ",".join(str(slot - shift) for slot in slots)
        moved["known_to"] = str(int(record["known_to"]) - shift)
    await scene.client.hset(key, mapping=moved)
    await scene.client.zadd(f"{scene.prefix}schedules", {scheduler_id: int(moved["at"])})
    (_, first), *_ = await scene.client.zrange(f"{scene.prefix}schedules", 0, 0, withscores=True)
    await scene.change_meta(schedule_at=int(first))
    return [slot - shift for slot in slots[:count]]
