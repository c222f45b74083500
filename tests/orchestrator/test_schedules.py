"""Schedules: one next job whatever happens, late but never lost, and gone when they are removed."""

import pytest

from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.schedule import JobTemplate, RepeatOptions
from orchestrator.scripts import connect
from tests.invariants import check_queue
from tests.lua.scene import Scene, drain
from tests.lua.scheduling import pass_slots, upsert

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

EVERY = RepeatOptions(every_ms=60_000)


async def waiting(scene: Scene) -> list[str]:
    """The ids of the waiting jobs."""
    return [job.id for job in await scene.queue.get_jobs([JobState.WAITING])]


async def queue_events(scene: Scene) -> list[tuple[str, str]]:
    """Events of the queue about schedules."""
    events = await scene.queue.events_after("0-0")
    assert events is not None
    return [(event.type, event.fields["schedule"]) for event in events if "schedule" in event.fields]


async def test_the_first_job_comes_at_once_and_is_made_from_the_template(scene: Scene) -> None:
    made = await scene.queue.upsert_job_scheduler(
        "report", EVERY, JobTemplate("send", {"to": "me"}, JobOptions(priority=3, attempts=2))
    )
    (job,) = await scene.queue.get_jobs([JobState.WAITING])
    assert (job.id, job.name, job.priority) == (made.last_job_id, "send", 3)
    assert (job.header.schedule, job.header.attempts) == ("report", 2)
    assert job.data_as(dict[str, str]) == {"to": "me"}
    assert job.id == f"report:{job.created_at}"
    assert (made.made, made.skipped, made.next_at) == (1, 0, job.created_at + 60_000)
    await check_queue(scene.queue)


async def test_each_slot_makes_one_job_named_by_it(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("s", EVERY)
    await drain(scene)
    for number in (2, 3, 4):
        (slot,) = await pass_slots(scene, "s", 1)
        assert await drain(scene) == [f"s:{slot}"]
        assert await drain(scene) == []
        found = await scene.queue.get_job_scheduler("s")
        assert found is not None
        assert found.next_at == slot + 60_000
        assert (found.made, found.skipped) == (number, 0)
    await check_queue(scene.queue)


async def test_of_missed_slots_one_job_is_made_late_and_the_others_are_counted(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("s", EVERY)
    await drain(scene)
    slots = await pass_slots(scene, "s", 5)
    assert await drain(scene) == [f"s:{slots[0]}"]
    found = await scene.queue.get_job_scheduler("s")
    assert found is not None
    assert (found.made, found.skipped, found.next_at) == (2, 4, slots[-1] + 60_000)


async def test_a_slot_is_skipped_while_the_job_before_has_not_started(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("s", EVERY)
    await pass_slots(scene, "s", 1)
    assert await scene.scripts.move_due_jobs(10) == 1
    await pass_slots(scene, "s", 2)
    assert await scene.scripts.move_due_jobs(10) == 1
    found = await scene.queue.get_job_scheduler("s")
    assert found is not None
    assert (found.made, found.skipped) == (1, 3)
    assert len(await waiting(scene)) == 1


async def test_a_job_that_runs_or_waits_for_its_next_attempt_does_not_hold_up_the_next_slot(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("s", EVERY, JobTemplate("s", None, JobOptions(attempts=3)))
    (claim,) = (await scene.claim()).claims
    (second,) = await pass_slots(scene, "s", 1)
    await scene.scripts.move_due_jobs(10)
    assert await waiting(scene) == [f"s:{second}"]
    await scene.finish(claim, "failed", b'{"kind":"transient","message":"","details":{}}', 50_000)
    (claim,) = (await scene.claim()).claims
    await scene.finish(claim, "failed", b'{"kind":"transient","message":"","details":{}}', 50_000)
    (third,) = await pass_slots(scene, "s", 1)
    assert await drain(scene) == [f"s:{third}"]
    await check_queue(scene.queue)


async def test_an_upsert_at_every_start_of_a_program_changes_nothing(scene: Scene) -> None:
    first = await scene.queue.upsert_job_scheduler("s", EVERY)
    for _ in range(5):
        again = await scene.queue.upsert_job_scheduler("s", EVERY)
        assert again == first
    await drain(scene)
    (slot,) = await pass_slots(scene, "s", 1)
    await scene.queue.upsert_job_scheduler("s", EVERY)
    assert await drain(scene) == [f"s:{slot}"]
    assert await queue_events(scene) == [("scheduled", "s")]


async def test_a_new_template_counts_for_the_job_that_waits_and_for_the_next(scene: Scene) -> None:
    first = await scene.queue.upsert_job_scheduler("s", EVERY, JobTemplate("old", 1))
    second = await scene.queue.upsert_job_scheduler("s", EVERY, JobTemplate("new", 2, JobOptions(priority=5)))
    (job,) = await scene.queue.get_jobs([JobState.WAITING])
    assert (job.id, job.name, job.data_as(int), job.priority) == (first.last_job_id, "new", 2, 5)
    assert (second.made, second.next_at) == (first.made, first.next_at)
    await drain(scene)
    await pass_slots(scene, "s", 1)
    (claim,) = (await scene.claim()).claims
    await scene.queue.upsert_job_scheduler("s", EVERY, JobTemplate("newest", 3))
    assert claim.job.name == "new"
    assert (await scene.queue.get_job(claim.job.id)) is not None
    await scene.finish(claim)
    await pass_slots(scene, "s", 1)
    (claim,) = (await scene.claim()).claims
    assert (claim.job.name, claim.job.data_as(int)) == ("newest", 3)
    await check_queue(scene.queue)


async def test_another_timing_begins_anew(scene: Scene) -> None:
    first = await scene.queue.upsert_job_scheduler("s", EVERY)
    second = await scene.queue.upsert_job_scheduler("s", RepeatOptions(every_ms=90_000))
    assert (second.made, second.repeat.every_ms) == (1, 90_000)
    assert await waiting(scene) == [second.last_job_id]
    assert second.last_job_id is not None
    assert second.next_at == int(second.last_job_id[2:]) + 90_000
    third = await scene.queue.upsert_job_scheduler("s", RepeatOptions(cron="0 0 1 1 *"))
    assert (third.made, third.last_job_id, third.repeat.every_ms) == (0, None, None)
    assert await waiting(scene) == []
    assert first.next_at is not None
    await check_queue(scene.queue)


async def test_a_start_in_the_future_is_the_first_slot_and_one_in_the_past_sets_the_beat(scene: Scene) -> None:
    now, _ = await scene.scripts.get_job_scheduler("x")
    future, past = now + 500_000, now - 1_000_500
    later = await scene.queue.upsert_job_scheduler("later", RepeatOptions(every_ms=60_000, start_at=future))
    assert (later.next_at, later.made) == (future, 0)
    beat = await scene.queue.upsert_job_scheduler("beat", RepeatOptions(every_ms=1_000_000, start_at=past))
    assert (beat.next_at, beat.made) == (past + 2_000_000, 0)
    assert await waiting(scene) == []


async def test_a_limit_and_an_end_finish_a_schedule_and_raising_them_lets_it_go_on(scene: Scene) -> None:
    limited = RepeatOptions(every_ms=60_000, limit=2)
    await scene.queue.upsert_job_scheduler("s", limited)
    await drain(scene)
    await pass_slots(scene, "s", 1)
    assert len(await drain(scene)) == 1
    found = await scene.queue.get_job_scheduler("s")
    assert found is not None
    assert (found.made, found.next_at, found.is_finished) == (2, None, True)
    assert (await scene.meta()).get("schedule_at") is None
    assert (await scene.queue.upsert_job_scheduler("s", limited)).is_finished
    more = await scene.queue.upsert_job_scheduler("s", RepeatOptions(every_ms=60_000, limit=3))
    assert (more.made, more.is_finished) == (2, False)
    assert more.next_at is not None
    ended = await scene.queue.upsert_job_scheduler("s", RepeatOptions(every_ms=60_000, end_at=more.next_at - 1))
    assert ended.is_finished
    await pass_end(scene)


async def pass_end(scene: Scene) -> None:
    """Of the slots up to the end one is made, late; those after it are not even missed."""
    now, _ = await scene.scripts.get_job_scheduler("x")
    repeat = RepeatOptions(every_ms=60_000, start_at=now + 60_000, end_at=now + 120_000)
    await scene.queue.upsert_job_scheduler("e", repeat)
    await scene.client.hset(f"{scene.prefix}schedule:e", "end_at", now - 100_000)
    await pass_slots(scene, "e", 4)
    assert await scene.scripts.move_due_jobs(10) == 1
    found = await scene.queue.get_job_scheduler("e")
    assert found is not None
    assert (found.made, found.skipped, found.is_finished) == (1, 1, True)


async def test_a_schedule_that_is_over_before_it_began_is_kept_and_makes_nothing(scene: Scene) -> None:
    for repeat in (RepeatOptions(every_ms=1000, end_at=1), RepeatOptions(cron="@daily", end_at=1, immediately=True)):
        assert (await scene.queue.upsert_job_scheduler("s", repeat)).is_finished
    assert await waiting(scene) == []


async def test_removing_takes_the_job_that_has_not_started_and_leaves_the_running_one(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("a", EVERY)
    (running,) = (await scene.claim()).claims
    await pass_slots(scene, "a", 1)
    await scene.scripts.move_due_jobs(10)
    await scene.queue.upsert_job_scheduler("b", EVERY)
    assert len(await waiting(scene)) == 2
    assert await scene.queue.remove_job_scheduler("a")
    assert not await scene.queue.remove_job_scheduler("a")
    assert [job_id[:2] for job_id in await waiting(scene)] == ["b:"]
    assert await scene.finish(running) == "completed"
    assert await scene.queue.get_job_scheduler("a") is None
    assert [each.id for each in await scene.queue.get_job_schedulers()] == ["b"]
    assert await scene.queue.remove_job_scheduler("b")
    assert await queue_events(scene) == [
        ("scheduled", "a"), ("scheduled", "b"), ("unscheduled", "a"), ("unscheduled", "b")
    ]  # fmt: skip
    found = await check_queue(scene.queue)
    assert not [key for key in found if key.startswith("schedule")]
    assert "schedule_at" not in found["meta"]


async def test_schedules_are_read_in_pages_next_first(scene: Scene) -> None:
    for number, every_ms in enumerate([50_000, 20_000, 40_000, 30_000]):
        await scene.queue.upsert_job_scheduler(f"s{number}", RepeatOptions(every_ms=every_ms))
    await scene.queue.upsert_job_scheduler("over", RepeatOptions(every_ms=1000, limit=1))
    assert await scene.queue.get_job_schedulers_count() == 5
    pages = [await scene.queue.get_job_schedulers(start, 2) for start in (0, 2, 4)]
    assert [[each.id for each in page] for page in pages] == [["s1", "s3"], ["s2", "s0"], ["over"]]


async def test_neither_a_kept_job_nor_one_of_a_user_breaks_the_chain(scene: Scene) -> None:
    """BullMQ answers -10 and stops."""
    await scene.queue.upsert_job_scheduler("s", EVERY)
    await drain(scene)
    (slot,) = await pass_slots(scene, "s", 1)
    await scene.add(f"s:{slot}")
    assert await drain(scene) == [f"s:{slot}"]
    found = await scene.queue.get_job_scheduler("s")
    assert found is not None
    assert (found.made, found.skipped) == (1, 1)
    (slot,) = await pass_slots(scene, "s", 1)
    assert await drain(scene) == [f"s:{slot}"]


async def test_removing_jobs_by_hand_does_not_break_the_chain(scene: Scene) -> None:
    """BullMQ's pending job is the chain: drained, it is gone."""
    await scene.queue.upsert_job_scheduler("s", EVERY)
    for _ in range(3):
        (job_id,) = await waiting(scene)
        assert await scene.queue.remove(job_id)
        await pass_slots(scene, "s", 1)
        await scene.scripts.move_due_jobs(10)
    assert len(await waiting(scene)) == 1


async def test_keys_that_somebody_deleted_break_no_claim(scene: Scene) -> None:
    await scene.queue.upsert_job_scheduler("s", EVERY)
    await drain(scene)
    await pass_slots(scene, "s", 1)
    await scene.client.delete(f"{scene.prefix}schedule:s")
    await scene.add("a")
    assert await drain(scene) == ["a"]
    assert await scene.queue.get_job_schedulers_count() == 0


async def test_a_user_who_may_not_ask_how_full_the_server_is_gets_the_jobs_of_schedules(scene: Scene, url: str) -> None:
    await scene.client.acl_setuser("worker", enabled=True, passwords=["+secret"], commands=["+@all", "-info"],
                                   keys=["*"], channels=["*"])  # fmt: skip
    client = connect(url.replace("unix://", "unix://worker:secret@"))
    worker = Scene(Queue(scene.queue.name, client))
    await upsert(scene, "s", EVERY)
    await drain(scene)
    await pass_slots(scene, "s", 1)
    assert len(await drain(worker)) == 1
    await client.aclose()
    await scene.client.acl_deluser("worker")


async def test_hundreds_of_schedules_that_are_due_at_once_are_run_in_bounded_steps(scene: Scene) -> None:
    for number in range(250):
        await scene.queue.upsert_job_scheduler(f"s{number}", EVERY)
    while (await scene.claim(50)).claims:
        pass
    await scene.client.eval(
        "for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('ZADD', KEYS[1], 1, id);"
        "redis.call('HSET', ARGV[1] .. id, 'at', 1) end",
        1, f"{scene.prefix}schedules", f"{scene.prefix}schedule:",
    )  # fmt: skip
    await scene.change_meta(schedule_at=1)
    assert [await scene.scripts.move_due_jobs(100) for _ in range(11)] == [100] * 9 + [25, 0]
    assert (await scene.queue.get_counts())["waiting"] == 250
    await check_queue(scene.queue)


async def test_large_data_are_copied_a_few_at_a_time(scene: Scene) -> None:
    for number in range(5):
        template = JobTemplate("s", "x" * 400_000)
        await scene.queue.upsert_job_scheduler(f"s{number}", RepeatOptions(every_ms=1000 * (10 - number)), template)
    await scene.claim(5)
    for number in range(5):
        await pass_slots(scene, f"s{number}", 1)
    assert [await scene.scripts.move_due_jobs(100) for _ in range(3)] == [100, 2, 0]


async def test_a_queue_without_schedules_never_looks_for_them(scene: Scene, queue: Queue) -> None:
    commands: list[str] = []
    async with scene.client.monitor() as monitor:
        await queue.add("paint")
        (claim,) = (await scene.claim()).claims
        await scene.finish(claim)
        await scene.scripts.move_due_jobs(10)
        await scene.client.echo("end")
        async for command in monitor.listen():
            commands.append(command["command"])
            if command["command"].lower().startswith("echo"):
                break
    assert any("zrangebyscore" in command.lower() for command in commands)
    assert not [command for command in commands if "schedule" in command]


async def test_a_late_copy_of_an_upsert_does_not_undo_the_one_after_it(scene: Scene) -> None:
    encoded = JobTemplate("s").encode("s", JobOptions())
    await scene.scripts.upsert_job_scheduler("first", "s", encoded, EVERY, None)
    await scene.scripts.upsert_job_scheduler("second", "s", encoded, RepeatOptions(every_ms=90_000), None)
    again = await scene.scripts.upsert_job_scheduler("first", "s", encoded, EVERY, None)
    assert again is not None
    assert again.repeat.every_ms == 90_000


async def test_another_start_begins_anew_and_a_slot_at_the_very_end_counts(scene: Scene) -> None:
    now, _ = await scene.scripts.get_job_scheduler("s")
    for start in (now + 100_000, now + 200_000):
        repeat = RepeatOptions(every_ms=60_000, start_at=start, end_at=start)
        made = await scene.queue.upsert_job_scheduler("s", repeat)
        assert (made.next_at, made.is_finished) == (start, False)


async def test_a_refill_of_a_former_version_is_refused_also_where_it_would_fit(scene: Scene) -> None:
    await upsert(scene, "s", RepeatOptions(cron="*/5 * * * *"), keep_slots=2)
    (hungry,) = await scene.scripts.get_hungry_schedules(1)
    await scene.client.hset(f"{scene.prefix}schedule:s", "version", "newer")
    slots = hungry.repeat.slots_after(hungry.known_to)
    assert not await scene.scripts.fill_schedule("s", hungry.version, slots)
