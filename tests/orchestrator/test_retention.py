"""How long finished jobs are kept: exactly so long and so many, the oldest go first, and no step does much."""

import pytest

from orchestrator.duties import ExpiredRemover
from orchestrator.job import JobState, KeepJobs
from orchestrator.scripts import Finish
from tests.conftest import wait_until
from tests.dump import dump
from tests.invariants import check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

POISON = b'{"kind":"poison","message":"","details":{}}'


async def kept(scene: Scene, state: JobState = JobState.COMPLETED) -> list[str]:
    """The finished jobs, newest first."""
    found: list[str] = []
    start = 0
    while (page := await scene.queue.get_page(start, 100, state)).looked:
        found += [job.id for job in page.jobs]
        start += page.looked
    return found


async def test_a_count_that_became_small_ends_a_few_at_once_and_the_rest_by_duty(scene: Scene) -> None:
    for number in range(250):
        await scene.completed(f"j{number:03}", has_files=True)
    await scene.completed("last", remove_on_complete=4)
    assert len(await kept(scene)) == 241, "a finish ends ten"
    remover = ExpiredRemover(scene.queue)
    steps = 1
    while await remover.step():
        steps += 1
    assert steps == 5
    assert await kept(scene) == ["last", "j249", "j248", "j247"]
    assert (await scene.meta()).get("trim_completed") is None
    assert await scene.client.zcard(f"{scene.prefix}sweep") == 247
    await check_queue(scene.queue)


async def test_jobs_that_end_later_are_no_part_of_what_a_count_left_to_the_duty(scene: Scene) -> None:
    for number in range(30):
        await scene.completed(f"j{number:03}")
    await scene.completed("last", remove_on_complete=2)
    for number in range(30):
        await scene.completed(f"more{number:03}", remove_on_complete=1000)
    while await scene.scripts.remove_expired(7):
        pass
    assert await kept(scene) == [*(f"more{number:03}" for number in range(29, -1, -1)), "last", "j029"]


async def test_a_larger_count_does_not_forgive_what_a_smaller_one_left_to_the_duty(scene: Scene) -> None:
    for number in range(60):
        await scene.completed(f"j{number:03}")
    await scene.completed("k", remove_on_complete=2)
    await scene.completed("l", remove_on_complete=30)
    while await scene.scripts.remove_expired(7):
        pass
    assert await kept(scene) == ["l", "k", "j059"]


async def test_what_was_left_to_the_duty_is_found_when_its_first_kept_job_is_removed(scene: Scene) -> None:
    for number in range(30):
        await scene.completed(f"j{number:03}")
    await scene.completed("last", remove_on_complete=2)
    await scene.queue.remove("j029")
    while await scene.scripts.remove_expired(7):
        pass
    assert await kept(scene) == ["last"]


async def test_records_that_ended_by_age_do_not_push_out_live_ones(scene: Scene) -> None:
    for number in range(3):
        await scene.completed(f"long{number}")
    for number in range(5):
        await scene.completed(f"short{number}", remove_on_complete=KeepJobs(age_s=1000))
        await scene.end_retention(f"short{number}", "completed")
    await scene.completed("last", remove_on_complete=4)
    assert await kept(scene) == ["last", "long2", "long1", "long0"]
    await scene.completed("another", remove_on_complete=4)
    assert await kept(scene) == ["another", "last", "long2", "long1"]
    await check_queue(scene.queue)


async def test_a_job_is_kept_only_within_its_count_and_its_age(scene: Scene) -> None:
    rule = KeepJobs(age_s=1000, count=2)
    for number in range(3):
        await scene.completed(f"j{number}", remove_on_complete=rule)
    assert await kept(scene) == ["j2", "j1"]
    assert await scene.client.pttl(f"{scene.prefix}state:j2") > 900_000
    await scene.end_retention("j1", "completed")
    assert await kept(scene) == ["j2"]
    assert (await scene.queue.get_counts())["completed"] == 1


async def test_states_are_counted_apart(scene: Scene) -> None:
    for number in range(3):
        await scene.completed(f"c{number}", remove_on_complete=1, remove_on_fail=2)
        await scene.failed(f"f{number}", remove_on_complete=1, remove_on_fail=2)
        await scene.canceled(f"x{number}", remove_on_complete=1, remove_on_fail=2)
    assert await kept(scene) == ["c2"]
    assert await kept(scene, JobState.FAILED) == ["f2", "f1"]
    assert await kept(scene, JobState.CANCELED) == ["x2", "x1"]
    assert await scene.client.zrange(f"{scene.prefix}dead", 0, -1) == [b"f1", b"f2"]


async def test_a_job_that_removes_itself_pushes_nobody_out(scene: Scene) -> None:
    await scene.completed("a")
    await scene.completed("b", remove_on_complete=True)
    assert await kept(scene) == ["a"]


async def test_many_that_end_in_one_call_keep_their_count(scene: Scene) -> None:
    for number in range(40):
        await scene.add(f"j{number:02}", remove_on_complete=5)
    claims = (await scene.claim(40)).claims
    endings = [Finish(claim.job.id, claim.lease, "completed", b"1") for claim in claims]
    await scene.scripts.move_to_finished(scene.token(), "w:1", "w", LEASE_MS, INTERVAL_MS, 0, endings)
    assert await kept(scene) == [f"j{number}" for number in range(39, 34, -1)]
    await check_queue(scene.queue)


async def test_a_job_with_an_age_is_gone_in_time_although_no_other_ever_finishes(scene: Scene) -> None:
    """taskforcesh/bullmq#1353: there an idle queue keeps it for ever."""
    claim = await scene.active("a", remove_on_complete=KeepJobs(age_s=1))
    await scene.scripts.add_log("a", claim.lease, 1, "line")
    await scene.finish(claim)
    remover = ExpiredRemover(scene.queue)

    async def is_gone() -> bool:
        await remover.step()
        found = await dump(scene.client, scene.prefix)
        return "completed" not in found and not {key for key in found if key.endswith(":a") and key != "gone:a"}

    await wait_until(is_gone, timeout_s=1 + 2 * remover.interval_s)
    found = await dump(scene.client, scene.prefix)
    assert set(found) - {"marker", "totals:before"} == {"meta", "events", "gone:a"}
    assert (await scene.queue.get_counts())["completed"] == 0


async def test_the_files_of_an_obliterated_queue_are_still_to_be_deleted(scene: Scene) -> None:
    claim = await scene.completed("a", has_files=True)
    epoch = (await scene.meta())["epoch"]
    await scene.scripts.obliterate(epoch, force=False, limit=10, closing_ms=60_000)
    await scene.scripts.forget_keys(epoch, ["sweep", "meta"])
    assert await scene.scripts.get_due_files(10) == [f"a/1-{claim.lease}"]
