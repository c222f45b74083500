"""Schedules by cron: their slots are computed here, refilled by a duty, and none is lost when that comes late."""

import asyncio
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from orchestrator import duties, service
from orchestrator.duties import ScheduleFiller
from orchestrator.errors import GroupFull, QueueFull
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.schedule import SLOTS_AHEAD, JobScheduler, JobTemplate, RepeatOptions
from tests.conftest import wait_until
from tests.dump import dump
from tests.invariants import check_queue
from tests.lua.scene import Scene, drain
from tests.lua.scheduling import pass_slots, upsert
from tests.orchestrator.test_slots import CHANGES

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

FIVE = RepeatOptions(cron="*/5 * * * *")


async def read(scene: Scene) -> JobScheduler:
    found = await scene.queue.get_job_scheduler("s")
    assert found is not None
    return found


async def known(scene: Scene) -> list[int]:
    """The slots that the schedule knows ahead."""
    text = await scene.client.hget(f"{scene.prefix}schedule:s", "slots")
    return [int(slot) for slot in text.split(b",")] if text else []


async def test_a_schedule_knows_its_next_slots_by_the_servers_clock(scene: Scene) -> None:
    before, _ = await scene.scripts.get_job_scheduler("s")
    made = await scene.queue.upsert_job_scheduler("s", RepeatOptions(cron="30 4 * * *", tz="Asia/Tokyo"))
    slots = await known(scene)
    assert made.next_at == slots[0]
    assert len(slots) == SLOTS_AHEAD
    assert 0 < slots[0] - before <= 86_400_000
    shown = {datetime.fromtimestamp(slot / 1000, ZoneInfo("Asia/Tokyo")).strftime("%H:%M") for slot in slots}
    assert shown == {"04:30"}
    assert (made.made, made.repeat.cron, made.repeat.tz) == (0, "30 4 * * *", "Asia/Tokyo")


@pytest.mark.parametrize(("tz", "forward", "back", "minutes", "hour"), CHANGES, ids=str)
async def test_every_slot_around_a_change_of_clocks_makes_one_job(
    scene: Scene, tz: str, forward: str, back: str, minutes: int, hour: int
) -> None:
    """D4 of shared/reliability.md, through the queue and the duty: the time up to which slots are known is set back."""
    filler = ScheduleFiller(scene.queue)
    for day in (forward, back):
        noon = int(datetime.fromisoformat(f"{day} 00:00+00:00").timestamp() * 1000) - 43_200_000
        for cron in (f"*/20 {hour},{hour + 1 if hour < 23 else 0} * * *", "30 * * * *"):
            name = cron[:2].strip("*/ ") + day
            await upsert(scene, name, RepeatOptions(cron=cron, tz=tz), keep_slots=0)
            made = [noon]
            while made[-1] < noon + 86_400_000:
                await scene.client.hset(f"{scene.prefix}schedule:{name}", "known_to", made[-1])
                await filler.step()
                (job_id,) = await drain(scene)
                made.append(int(job_id.rpartition(":")[2]))
            day_long = [slot for slot in made[1:] if slot <= noon + 86_400_000]
            shown = [datetime.fromtimestamp(slot / 1000, ZoneInfo(tz)).strftime("%d %H:%M") for slot in day_long]
            if cron.startswith("*/20"):
                assert len(shown) == len(set(shown))
                assert len(shown) in ((6,) if day == back else (3, 4, 5, 6))
            else:
                assert len(shown) == 24 or minutes < 60
                assert len(shown) - len(set(shown)) == (1 if day == back else 0)
            await scene.queue.remove_job_scheduler(name)
    await check_queue(scene.queue)


async def place(scene: Scene, slots: list[int]) -> None:
    """These are the slots of the schedule."""
    mapping = {"at": slots[0], "slots": ",".join(map(str, slots)), "known_to": slots[-1]}
    await scene.client.hset(f"{scene.prefix}schedule:s", mapping=mapping)
    await scene.client.zadd(f"{scene.prefix}schedules", {"s": slots[0]})
    await scene.change_meta(schedule_at=slots[0])


async def test_the_duty_goes_on_where_the_known_slots_end(scene: Scene) -> None:
    await upsert(scene, "s", FIVE, keep_slots=3)
    first = await known(scene)
    filler = ScheduleFiller(scene.queue)
    assert not await filler.step()
    slots = await known(scene)
    assert slots == [first[0] + k * 300_000 for k in range(3 + SLOTS_AHEAD)]
    await filler.step()
    assert await known(scene) == slots
    assert await scene.scripts.get_hungry_schedules(10) == []


async def test_a_schedule_asks_for_slots_before_it_has_none(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("s", FIVE)
    asked = []
    for _ in range(SLOTS_AHEAD):
        await pass_slots(scene, "s", 1)
        await drain(scene)
        asked.append(len(await scene.scripts.get_hungry_schedules(10)))
        if len(await known(scene)) < 2:
            break
    assert asked == [0] * 24 + [1] * (len(asked) - 24)
    assert (await read(scene)).made == len(asked)


async def test_slots_that_came_while_none_were_known_make_one_job_late(scene: Scene) -> None:
    await upsert(scene, "s", FIVE, keep_slots=2)
    slots = await pass_slots(scene, "s", 2)
    assert await drain(scene) == [f"s:{slots[0]}"]
    found = await read(scene)
    assert (found.next_at, found.skipped, found.is_finished) == (None, 1, False)
    now, _ = await scene.scripts.get_job_scheduler("s")
    await scene.client.hset(f"{scene.prefix}schedule:s", "known_to", now - 7_200_000)  # two hours ago
    assert not await ScheduleFiller(scene.queue).step()
    (late,) = await drain(scene)
    assert now - 7_200_000 < int(late[2:]) <= now - 6_900_000
    assert await drain(scene) == []
    found = await read(scene)
    assert found.next_at is not None
    assert found.next_at > now
    assert found.made == 2
    await check_queue(scene.queue)


async def test_after_a_long_absence_one_job_is_made_and_the_schedule_goes_on(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("s", FIVE)
    slots = await pass_slots(scene, "s", SLOTS_AHEAD, late_ms=7_200_000)
    assert await drain(scene) == [f"s:{slots[0]}"]
    found = await read(scene)
    assert (found.made, found.skipped, found.next_at) == (1, SLOTS_AHEAD - 1, None)
    await ScheduleFiller(scene.queue).step()
    assert await drain(scene) == []
    found = await read(scene)
    now, _ = await scene.scripts.get_job_scheduler("s")
    assert found.next_at is not None
    assert now < found.next_at <= now + 300_000


async def test_a_refill_computed_for_a_former_timing_changes_nothing(scene: Scene) -> None:
    await upsert(scene, "s", FIVE, keep_slots=2)
    (hungry,) = await scene.scripts.get_hungry_schedules(10)
    old = hungry.repeat.slots_after(hungry.known_to)
    await scene.queue.upsert_job_scheduler("s", RepeatOptions(cron="0 0 1 1 *"))
    slots = await known(scene)
    assert not await scene.scripts.fill_schedule("s", hungry.version, old)
    assert await known(scene) == slots
    await scene.queue.remove_job_scheduler("s")
    assert not await scene.scripts.fill_schedule("s", hungry.version, old)
    assert not await scene.client.exists(f"{scene.prefix}schedule:s")


async def test_two_fillers_at_once_give_each_slot_once(scene: Scene) -> None:
    await upsert(scene, "s", FIVE, keep_slots=2)
    await asyncio.gather(*(ScheduleFiller(scene.queue).step() for _ in range(4)))
    slots = await known(scene)
    assert slots == sorted(set(slots))
    assert len(slots) == 2 + SLOTS_AHEAD


async def test_an_upsert_while_a_slot_comes_neither_loses_nor_doubles_it(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("s", FIVE)
    (slot,) = await pass_slots(scene, "s", 1)
    await scene.queue.upsert_job_scheduler("s", FIVE)
    assert await drain(scene) == [f"s:{slot}"]
    # a slow caller, who computed while the slot was still to come
    (slot,) = await pass_slots(scene, "s", 1)
    slots = [slot, *await known(scene)]
    assert await drain(scene) == [f"s:{slot}"]
    await scene.queue.remove(f"s:{slot}")
    encoded = JobTemplate("s").encode("s", scene.queue._default_job_options)
    stale = (slot - 1, slots, False)
    await scene.scripts.upsert_job_scheduler("late", "s", encoded, FIVE, stale)  # type: ignore[arg-type]
    assert await drain(scene) == []
    assert (await read(scene)).made == 2


async def test_immediately_makes_one_job_at_once_besides_the_slots(scene: Scene) -> None:
    repeat = RepeatOptions(cron="*/5 * * * *", immediately=True, limit=3)
    made = await scene.queue.upsert_job_scheduler("s", repeat)
    assert made.made == 1
    assert made.next_at is not None
    again = await scene.queue.upsert_job_scheduler("s", repeat)
    assert (again.made, again.next_at) == (1, made.next_at)
    assert await drain(scene) == [made.last_job_id]
    (slot,) = await pass_slots(scene, "s", 1)
    assert await drain(scene) == [f"s:{slot}"]
    assert (await scene.queue.upsert_job_scheduler("s", repeat)).made == 2


async def test_immediately_finds_no_room_where_an_add_finds_none(scene: Scene) -> None:
    repeat = RepeatOptions(cron="*/5 * * * *", immediately=True)
    of_group = JobTemplate("s", None, JobOptions(group="g"))
    await scene.add("a", group="g")
    await scene.queue.set_max_waiting(1)
    await scene.queue.set_group_max_waiting("g", 1)
    before = await dump(scene.client, scene.prefix)
    with pytest.raises(QueueFull, match="max_waiting"):
        await scene.queue.upsert_job_scheduler("s", repeat)
    assert await dump(scene.client, scene.prefix) == before
    assert (await scene.queue.upsert_job_scheduler("later", FIVE)).made == 0  # its slots wait for room
    await scene.queue.set_max_waiting(2)
    with pytest.raises(GroupFull):
        await scene.queue.upsert_job_scheduler("s", repeat, of_group)
    assert (await scene.queue.upsert_job_scheduler("s", repeat)).made == 1
    every = RepeatOptions(every_ms=60_000, start_at=7_000_000_000_000, immediately=True)
    assert (await scene.queue.upsert_job_scheduler("s", every)).made == 1  # in the place of the one that waited
    assert (await scene.queue.get_counts())["waiting"] == 2


async def test_an_end_finishes_a_cron_after_its_last_slot_and_a_later_one_lets_it_go_on(scene: Scene) -> None:
    now, _ = await scene.scripts.get_job_scheduler("s")
    end = RepeatOptions(cron="*/5 * * * *", end_at=now + 600_000)
    made = await scene.queue.upsert_job_scheduler("s", end)
    assert len(await known(scene)) == 2
    assert await scene.scripts.get_hungry_schedules(10) == []
    await pass_slots(scene, "s", 1)
    await drain(scene)
    await pass_slots(scene, "s", 1) if len(await known(scene)) > 1 else await come(scene)
    await drain(scene)
    found = await read(scene)
    assert (found.made, found.is_finished, found.next_at) == (2, True, None)
    assert (await scene.queue.upsert_job_scheduler("s", end)).made == 2
    later = await scene.queue.upsert_job_scheduler("s", FIVE)
    assert (later.is_finished, later.made) == (False, 2)
    assert later.next_at is not None
    assert later.next_at > now
    assert made.repeat.end_at == now + 600_000


async def come(scene: Scene) -> None:
    """The only slot left has come."""
    now, _ = await scene.scripts.get_job_scheduler("s")
    await place(scene, [now - 1])


async def test_a_start_holds_back_the_first_slot(scene: Scene) -> None:
    now, _ = await scene.scripts.get_job_scheduler("s")
    start = now // 300_000 * 300_000 + 3_000_000
    made = await scene.queue.upsert_job_scheduler("s", RepeatOptions(cron="*/5 * * * *", start_at=start))
    assert made.next_at == start


async def test_a_time_zone_that_this_machine_does_not_know_holds_up_no_other_schedule(scene: Scene) -> None:
    await upsert(scene, "s", FIVE, keep_slots=2)
    await upsert(scene, "lost", FIVE, keep_slots=2)
    await scene.client.hset(f"{scene.prefix}schedule:lost", "tz", "Mars/Olympus")
    await ScheduleFiller(scene.queue).step()
    assert len(await known(scene)) == 2 + SLOTS_AHEAD
    assert [each.id for each in await scene.scripts.get_hungry_schedules(10)] == ["lost"]


async def test_a_schedule_by_the_second_goes_on_beyond_its_known_slots(scene: Scene, queue: Queue) -> None:
    """The duties of any process refill it; nothing else is done here than claiming."""
    await upsert(scene, "s", RepeatOptions(cron="* * * * * *"), keep_slots=1)
    assert any(isinstance(duty, duties.ScheduleFiller) for duty in service.duties_of(queue, None, 1000, 1000))
    seen: list[str] = []

    async def three() -> bool:
        seen.extend(await drain(scene))
        return len(seen) >= 3

    async with service.duties(queue):
        await wait_until(three)
    slots: list[Any] = [int(job_id[2:]) for job_id in seen]
    assert slots == [slots[0] + 1000 * k for k in range(len(slots))]
    assert not await queue.get_jobs([JobState.ACTIVE])
