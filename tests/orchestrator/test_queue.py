"""What a queue promises to those who add, read and steer jobs, on both kinds of server."""

import asyncio
from typing import Any

import msgspec
import pytest

from orchestrator.backoff import Backoff
from orchestrator.errors import (
    LayoutMismatch,
    QueueFull,
)
from orchestrator.job import JobOptions, JobState, KeepJobs
from orchestrator.queue import Queue
from orchestrator.replies import Added
from orchestrator.scripts import Client
from tests.dump import dump
from tests.invariants import check_queue
from tests.lua.scene import Scene, drain, types
from tests.record import change_meta

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


# ── adding ───────────────────────────────────────────────────────────────────────────────────────────


async def test_an_added_job_is_read_back_as_it_was_given(queue: Queue) -> None:
    data: dict[str, Any] = {
        "text": 'שלום\n\u2028 \x00 "quote" </script>',
        "list": [],
        "none": None,
        "big": 2**53,
        "float": 1e-7,
    }
    options = JobOptions(priority=5, attempts=3, backoff=Backoff(delay_ms=10, jitter=0.5), timeout_ms=1, keep_logs=5)
    added = await queue.add("paint", data, options)
    found = await queue.get_job(added.id)
    assert found is not None
    assert found.header == added.header == options.header("paint")
    assert found.data_as(dict[str, Any]) == added.data_as(dict[str, Any]) == data
    assert (found.name, found.state, found.priority, found.created_at) == ("paint", "waiting", 5, added.created_at)
    assert not found.duplicated


async def test_the_same_id_gives_the_job_that_is_there_and_tells_so(queue: Queue) -> None:
    first = await queue.add("paint", 1, JobOptions(id="mine"))
    again = await queue.add("other", 2, JobOptions(id="mine", priority=9))
    assert again.duplicated
    assert (again.name, again.priority, again.created_at, bytes(again.data)) == ("paint", 0, first.created_at, b"1")
    assert (await queue.get_counts())["waiting"] == 1
    events = await queue.events_after("0-0")
    assert events is not None
    assert [(event.type, event.job) for event in events] == [("added", "mine"), ("duplicated", "mine")]


@pytest.mark.parametrize("state", list(JobState))
async def test_adding_an_existing_id_is_never_silent_in_any_state(scene: Scene, state: JobState) -> None:
    arrange: Any = {
        "waiting": scene.add,
        "delayed": lambda job_id: scene.add(job_id, delay_ms=10_000),
        "active": scene.active,
        "completed": scene.completed,
        "failed": scene.failed,
        "canceled": scene.canceled,
    }.get(state)
    if arrange is None:
        return
    await arrange("mine")
    again = await scene.queue.add("paint", None, JobOptions(id="mine"))
    assert (again.duplicated, again.state) == (True, state)


async def test_a_removed_id_can_be_used_again(queue: Queue) -> None:
    await queue.add("paint", 1, JobOptions(id="mine"))
    assert await queue.remove("mine")
    again = await queue.add("paint", 2, JobOptions(id="mine"))
    assert not again.duplicated
    assert types(await queue.get_history("mine")) == ["added"]
    await check_queue(queue)


async def test_an_id_whose_record_expired_lives_anew_and_outlives_its_past(scene: Scene) -> None:
    await scene.completed("mine", remove_on_complete=KeepJobs(age_s=1000))
    await scene.end_retention("mine", "completed")
    await scene.add("mine")
    await check_queue(scene.queue)
    assert await drain(scene) == ["mine"]
    assert await scene.scripts.remove_expired(10) == 0
    await check_queue(scene.queue)
    assert [job.id for job in await scene.queue.get_jobs([JobState.COMPLETED])] == ["mine"]


async def test_an_add_that_is_sent_again_after_its_job_came_and_went_adds_nothing(scene: Scene) -> None:
    """Its answer was lost; meanwhile the job was done and its short retention ended."""
    header = msgspec.json.encode(JobOptions(remove_on_complete=KeepJobs(age_s=1)).header("paint"))
    (first,) = await scene.scripts.add_jobs("token", [("a", header, b"1")])
    await drain(scene)
    await scene.end_retention("a", "completed")
    (again,) = await scene.scripts.add_jobs("token", [("a", header, b"1")])
    assert isinstance(first, Added)
    assert again == ("added", JobState.COMPLETED, first.created_at, "")
    assert await scene.scripts.get_counts() == dict.fromkeys(await scene.scripts.get_counts(), 0)


async def test_many_callers_of_one_id_make_one_job(queue: Queue) -> None:
    jobs = await asyncio.gather(*(queue.add("paint", n, JobOptions(id="one")) for n in range(20)))
    assert sum(not job.duplicated for job in jobs) == 1
    assert (await queue.get_counts())["waiting"] == 1
    await check_queue(queue)


async def test_two_queues_do_not_mix(queue: Queue, client: Client) -> None:
    other = Queue(f"{queue.name}-other", client)
    await queue.add("paint", 1, JobOptions(id="same"))
    await other.add("paint", 2, JobOptions(id="same", delay_ms=10_000))
    await other.pause()
    assert (await queue.get_counts())["waiting"] == 1
    assert (await other.get_counts())["delayed"] == 1
    assert not await queue.is_paused()
    assert await queue.remove("same")
    assert await other.get_job("same") is not None


async def test_an_outbox_that_nobody_empties_refuses_adds_but_no_finish(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.scripts.adding.OUTBOX_MAX", 2)
    claim = await scene.active("a", notify=("added", "completed"))
    await scene.add("b", notify=("added",))
    with pytest.raises(QueueFull):
        await scene.queue.add("paint")
    assert await scene.finish(claim) == "completed"
    assert await scene.client.xlen(scene.queue.keys.outbox) == 3


async def test_data_of_another_major_version_are_refused_by_every_call(queue: Queue) -> None:
    await change_meta(queue.client, queue.keys.meta, layout="99.0")
    before = await dump(queue.client, queue.keys.prefix)
    for call in (queue.add("paint"), queue.get_job("a"), queue.pause(), queue.cancel("a"), queue.get_counts()):
        with pytest.raises(LayoutMismatch, match=r"99\.0"):
            await call
    assert await dump(queue.client, queue.keys.prefix) == before


async def test_a_queue_that_only_an_idle_worker_of_an_older_version_had_seen_begins_anew(queue: Queue) -> None:
    await queue.client.hset(queue.keys.meta, "looked_at", 1)  # as layouts before 5 wrote it
    assert (await queue.get_counts())["waiting"] == 0
    await queue.add("paint")
    assert (await queue.get_counts())["waiting"] == 1


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────


async def test_pages_cover_every_job_of_every_state_once(scene: Scene) -> None:
    for number in range(7):
        await scene.completed(f"done{number}")
        await scene.failed(f"bad{number}")
    for number in range(5):
        await scene.active(f"run{number}")
    for number in range(9):
        await scene.add(f"wait{number}", priority=number)
        await scene.add(f"later{number}", delay_ms=10_000 + number)
    seen: list[str] = []
    start = 0
    while page := (await scene.queue.get_recent(start, 4))[0]:
        assert len(page) <= 4
        seen += [job.id for job in page]
        start += 4
    assert len(seen) == len(set(seen)) == 37
    states = [seen_id.rstrip("0123456789") for seen_id in seen]
    assert states[:23] == ["run"] * 5 + ["wait"] * 9 + ["later"] * 9
    finished = [job.finished_at or 0 for job in (await scene.queue.get_recent(23, 100))[0]]
    assert finished == sorted(finished, reverse=True)
    assert await scene.queue.get_counts() == {
        "waiting": 9, "prioritized": 8, "grouped": 0, "delayed": 9, "active": 5, "waiting-children": 0,
        "completed": 7, "failed": 7, "canceled": 0,
    }  # fmt: skip
    paged = [job.id for start in (0, 3, 6) for job in await scene.queue.get_jobs([JobState.COMPLETED], start, 3)]
    assert paged == [f"done{number}" for number in range(6, -1, -1)]


async def test_log_lines_are_kept_newest_and_paged(scene: Scene) -> None:
    claim = await scene.active("a", keep_logs=3)
    for number in range(1, 6):
        await scene.scripts.add_log("a", claim.lease, number, f"line {number}")
    assert await scene.queue.get_logs("a") == ["line 3", "line 4", "line 5"]
    assert await scene.queue.get_logs("a", 1, 1) == ["line 4"]
    assert await scene.queue.get_logs("none") == []
