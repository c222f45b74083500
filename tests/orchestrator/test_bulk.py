"""Many jobs in one call: all or none, each as if added alone."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from orchestrator.deduplication import Deduplication
from orchestrator.errors import BulkIncomplete, InvalidOption, OutcomeUnknown, QueueFull
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import BulkJob, Queue
from orchestrator.replies import Added
from orchestrator.scripts import Scripts
from tests.dump import dump
from tests.invariants import check_queue
from tests.lua.scene import Scene, drain, types

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def test_a_bulk_answers_each_job_as_add_does_and_keeps_their_order(scene: Scene) -> None:
    jobs = await scene.queue.add_bulk(
        [
            ("plain",),
            ("with data", {"x": []}),
            BulkJob("soon", 1, JobOptions(priority=2, id="soon")),
            BulkJob("late", None, JobOptions(delay_ms=50_000)),
            ("last", None, JobOptions(priority=9, expires_ms=60_000)),
            ("first", None, JobOptions(lifo=True)),
        ]
    )
    assert [job.name for job in jobs] == ["plain", "with data", "soon", "late", "last", "first"]
    for job in jobs:
        found = await scene.queue.get_job(job.id)
        assert found == job
        assert types(await scene.queue.get_history(job.id)) == ["added"]
    await check_queue(scene.queue)
    plain, data, soon, _, last, first = (job.id for job in jobs)
    assert await drain(scene) == [first, plain, data, soon, last]


async def test_a_bulk_of_500_is_one_script_and_501_are_refused(queue: Queue) -> None:
    jobs = [("paint", number) for number in range(500)]
    with pytest.raises(InvalidOption, match="at most 500") as refused:
        await queue.add_bulk([*jobs, ("one", 1)])
    assert refused.value.field == "jobs"
    assert await dump(queue.client, queue.keys.prefix) == {}
    added = await queue.add_bulk(jobs)
    assert [job.data_as(int) for job in added] == list(range(500))
    waiting: list[str] = []
    for start in range(0, 500, 100):
        waiting += [job.id for job in await queue.get_jobs([JobState.WAITING], start, 100)]
    assert waiting == [job.id for job in added]


async def test_a_bulk_has_a_limit_in_bytes(queue: Queue) -> None:
    jobs = [("paint", "x" * 500_000) for _ in range(17)]
    with pytest.raises(InvalidOption, match="bytes"):
        await queue.add_bulk(jobs)
    assert await dump(queue.client, queue.keys.prefix) == {}
    assert len(await queue.add_bulk(jobs, atomic=False)) == 17


async def test_an_empty_bulk_sends_nothing(queue: Queue) -> None:
    assert await queue.add_bulk([]) == await queue.add_bulk(iter(()), atomic=False) == []
    assert await dump(queue.client, queue.keys.prefix) == {}


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize(
    ("field", "job"),
    [
        ("jobs[2].priority", ("paint", None, JobOptions(priority=-1))),
        ("jobs[2].data", ("paint", math.nan)),
        ("jobs[2].name", ("",)),
        ("jobs[2].id", ("paint", None, JobOptions(id="b"))),
        ("jobs[2].id", ("paint", None, JobOptions(id="{}"))),
        ("jobs[2].deduplication.extend", ("paint", None, JobOptions(deduplication=Deduplication("k", extend=True)))),
        ("jobs[2].backoff.delay_ms", ("paint", None, JobOptions(backoff=-1))),
        ("jobs[2].opts", ("paint", None, {"priority": 1})),
        ("jobs[2].job", ()),
        ("jobs[2].job", ("paint", 1, None, 4)),
        ("jobs[2].job", "paint"),
        ("jobs[2].job", ["paint"]),
    ],
    ids=str,
)
async def test_one_bad_job_of_a_bulk_is_named_and_none_is_sent(
    queue: Queue, field: str, job: Any, atomic: bool
) -> None:
    good = [BulkJob("paint", 1, JobOptions(id=name)) for name in "abcd"]
    with pytest.raises(InvalidOption) as refused:
        await queue.add_bulk([*good[:2], job, *good[2:]], atomic=atomic)
    assert refused.value.field == field
    assert await dump(queue.client, queue.keys.prefix) == {}


async def test_ids_that_are_there_give_the_jobs_that_are_there(scene: Scene) -> None:
    await scene.completed("done")
    await scene.add("here", priority=4)
    jobs = await scene.queue.add_bulk([("other", 9, JobOptions(id=name)) for name in ("here", "new", "done")])
    assert [(job.id, job.name, job.state, job.duplicated) for job in jobs] == [
        ("here", "paint", "waiting", True),
        ("new", "other", "waiting", False),
        ("done", "paint", "completed", True),
    ]
    await check_queue(scene.queue)


async def test_many_bulks_of_the_same_ids_make_each_job_once(queue: Queue) -> None:
    bulk = [("paint", number, JobOptions(id=f"j{number}")) for number in range(20)]
    answers = await asyncio.gather(*(queue.add_bulk(bulk) for _ in range(8)))
    for number in range(20):
        assert sum(not answer[number].duplicated for answer in answers) == 1
    assert (await queue.get_counts())["waiting"] == 20
    await check_queue(queue)


async def test_a_bulk_that_is_sent_again_after_its_jobs_came_and_went_adds_nothing(scene: Scene) -> None:
    header = msgspec.json.encode(JobOptions(remove_on_complete=True).header("paint"))
    bulk = [(name, header, b"1") for name in ("a", "b", "met")]
    await scene.add("met")
    first = await scene.scripts.add_bulk("token", bulk)
    assert await drain(scene) == ["met", "a", "b"]
    await scene.queue.remove("met")
    again = await scene.scripts.add_bulk("token", bulk)
    assert [(added.outcome, added.job_id, added.created_at) for added in again[:2]] == [
        (added.outcome, added.job_id, added.created_at) for added in first[:2]
    ]
    assert again[2].outcome == first[2].outcome == "duplicated"
    assert await scene.queue.count() == 0


async def test_a_bulk_needs_room_for_all_its_new_jobs(scene: Scene) -> None:
    await scene.queue.set_max_waiting(3)
    await scene.add("a", deduplication=Deduplication("held"))
    before = await dump(scene.client, scene.prefix)
    with pytest.raises(QueueFull, match="3"):
        await scene.queue.add_bulk([("paint",)] * 3)
    assert await dump(scene.client, scene.prefix) == before
    twin = JobOptions(deduplication=Deduplication("held"))
    same = JobOptions(deduplication=Deduplication("new"))
    jobs = await scene.queue.add_bulk(
        [("paint", None, JobOptions(id="a")), ("paint", None, twin), ("paint", None, same), ("paint", None, same),
         ("paint",)]
    )  # fmt: skip
    assert [job.duplicated or job.deduplicated for job in jobs] == [True, True, False, True, False]
    assert jobs[3].id == jobs[2].id
    assert await scene.queue.count() == 3


async def test_a_bulk_meets_the_limit_of_the_outbox(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.scripts.adding.OUTBOX_MAX", 1)
    await queue.add("paint", None, JobOptions(notify=("added",)))
    with pytest.raises(QueueFull, match="outbox"):
        await queue.add_bulk([("paint",)])


async def test_a_bulk_in_chunks_may_have_any_length(queue: Queue) -> None:
    jobs = await queue.add_bulk((("paint", number) for number in range(1234)), atomic=False)
    assert [job.data_as(int) for job in jobs] == list(range(1234))
    assert (await queue.get_counts())["waiting"] == 1234


@pytest.mark.parametrize("problem", [OutcomeUnknown("no answer"), QueueFull("full")])
async def test_a_bulk_in_chunks_that_stops_says_what_was_stored(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    calls = 0
    send = Scripts.add_bulk

    async def fail_at_third(self: Scripts, token: str, jobs: Sequence[tuple[str, bytes, bytes]]) -> list[Added]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise problem
        return await send(self, token, jobs)

    monkeypatch.setattr(Scripts, "add_bulk", fail_at_third)
    bulk = [("paint", number, JobOptions(id=f"j{number}")) for number in range(350)]
    ids = [f"j{number}" for number in range(350)]
    with pytest.raises(BulkIncomplete, match="200 jobs were stored") as stopped:
        await queue.add_bulk(bulk, atomic=False)
    assert stopped.value.stored == [ids[:100], ids[100:200]]
    doubt = 100 if isinstance(problem, OutcomeUnknown) else 0
    assert stopped.value.unknown == ids[200 : 200 + doubt]
    assert stopped.value.missing == ids[200 + doubt :]
    assert stopped.value.__cause__ is problem
    again = await queue.add_bulk(bulk, atomic=False)
    assert [job.duplicated for job in again] == [True] * 200 + [False] * 150
    assert (await queue.get_counts())["waiting"] == 350


async def test_jobs_of_a_bulk_wake_workers_like_others(scene: Scene) -> None:
    await scene.queue.add_bulk([("paint",), ("paint",)])
    assert await scene.client.exists(scene.queue.keys.marker)
