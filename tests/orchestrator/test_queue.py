"""What a queue promises to those who add, read and steer jobs, on both kinds of server."""

import asyncio
import dataclasses
import json
import math
import random
from typing import Any

import msgspec
import pytest

from orchestrator.backoff import Backoff
from orchestrator.errors import (
    InvalidOption,
    JobNotFound,
    LayoutMismatch,
    QueueFull,
    WrongState,
)
from orchestrator.events import Event, id_key
from orchestrator.job import JobOptions, JobState, KeepJobs
from orchestrator.queue import Queue
from orchestrator.scripts import Client, Finish, Report
from tests.conftest import wait_until
from tests.dump import dump
from tests.invariants import check_history, check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

POISON = b'{"kind":"poison","message":"","details":{}}'


@pytest.fixture
async def scene(queue: Queue) -> Scene:
    return Scene(queue)


async def drain(scene: Scene) -> list[str]:
    """Claim and complete everything that waits; returns the ids in the order of their claims."""
    order = []
    while claims := (await scene.claim()).claims:
        order.append(claims[0].job.id)
        await scene.finish(claims[0])
    return order


def types(history: list[Event]) -> list[str]:
    return [event.type for event in history]


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
    first = await scene.scripts.add_job("token", "a", header, b"1")
    await drain(scene)
    await scene.end_retention("a", "completed")
    assert await scene.scripts.add_job("token", "a", header, b"1") == (True, JobState.COMPLETED, first[2])
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
    monkeypatch.setattr("orchestrator.scripts.OUTBOX_MAX", 2)
    claim = await scene.active("a", notify=("added", "completed"))
    await scene.add("b", notify=("added",))
    with pytest.raises(QueueFull):
        await scene.queue.add("paint")
    assert await scene.finish(claim) == "completed"
    assert await scene.client.xlen(scene.queue.keys.outbox) == 3


async def test_data_of_another_major_version_are_refused_by_every_call(queue: Queue) -> None:
    await queue.client.hset(queue.keys.meta, "layout", "2.0")
    before = await dump(queue.client, queue.keys.prefix)
    for call in (queue.add("paint"), queue.get_job("a"), queue.pause(), queue.cancel("a"), queue.get_counts()):
        with pytest.raises(LayoutMismatch, match=r"2\.0"):
            await call
    assert await dump(queue.client, queue.keys.prefix) == before


# ── hostile input ────────────────────────────────────────────────────────────────────────────────────

DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@dataclasses.dataclass
class Point:
    x: float


@pytest.mark.parametrize(
    "data",
    [
        math.nan,
        {"a": [1, {"b": math.inf}]},
        [None, -math.inf],
        Point(math.nan),
        (1, math.nan),
        CYCLE,
        DEEP,
        "\ud800",
        {"\udfff": 1},
        {(1, 2): 3},
        object(),
        print,
        "x" * 600_000,
        msgspec.Raw(b'{"a":'),
        msgspec.Raw(b""),
        msgspec.Raw(b"1\n2"),
        msgspec.Raw(b"NaN"),
    ],
    ids=lambda data: type(data).__name__,
)
async def test_data_that_json_cannot_say_are_refused_and_nothing_is_sent(queue: Queue, data: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.add("paint", data)
    assert refused.value.field == "data"
    assert await dump(queue.client, queue.keys.prefix) == {}


async def test_data_that_only_look_dangerous_are_taken(queue: Queue) -> None:
    for data in (
        None,
        [None],
        "null",
        {"null": 1.5},
        json.loads("[" * 200 + "]" * 200),
        10**30,
        -0.0,
        {"a": "NaN"},
        msgspec.Raw(b'{"a":\n 1}'),
    ):
        job = await queue.add("paint", data)
        found = await queue.get_job(job.id)
        assert found is not None
        assert bytes(found.data) == bytes(job.data)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("priority", {"priority": -1}),
        ("priority", {"priority": 2**21}),
        ("priority", {"priority": 1.5}),
        ("priority", {"priority": True}),
        ("priority", {"priority": "1"}),
        ("delay_ms", {"delay_ms": -5}),
        ("delay_ms", {"delay_ms": math.nan}),
        ("delay_ms", {"delay_ms": 2**63}),
        ("attempts", {"attempts": 0}),
        ("attempts", {"attempts": 101}),
        ("attempts", {"attempts": None}),
        ("timeout_ms", {"timeout_ms": -1}),
        ("expires_ms", {"expires_ms": 0.1}),
        ("max_stalled", {"max_stalled": -1}),
        ("keep_logs", {"keep_logs": 10**9}),
        ("lifo", {"lifo": "yes"}),
        ("has_files", {"has_files": 1}),
        ("notify", {"notify": "completed"}),
        ("notify", {"notify": ("completed failed",)}),
        ("notify", {"notify": ("nonsense",)}),
        ("backoff", {"backoff": "fast"}),
        ("backoff.delay_ms", {"backoff": -1}),
        ("backoff.delay_ms", {"backoff": Backoff(delay_ms=1.5)}),  # type: ignore[arg-type]
        ("backoff.jitter", {"backoff": Backoff(jitter=math.nan)}),
        ("backoff.jitter", {"backoff": Backoff(jitter="1")}),  # type: ignore[arg-type]
        ("backoff.max_ms", {"backoff": Backoff(max_ms=-1)}),
        ("backoff.type", {"backoff": Backoff("linear")}),  # type: ignore[arg-type]
        ("remove_on_complete", {"remove_on_complete": "x"}),
        ("remove_on_complete.count", {"remove_on_complete": -1}),
        ("remove_on_complete.age_s", {"remove_on_complete": KeepJobs(age_s=1.5)}),  # type: ignore[arg-type]
        ("remove_on_fail.age_s", {"remove_on_fail": KeepJobs(age_s=-1)}),
        ("id", {"id": ""}),
        ("id", {"id": "a b"}),
        ("id", {"id": "a\n"}),
        ("id", {"id": "{x}"}),
        ("id", {"id": "*"}),
        ("id", {"id": "ä"}),
        ("id", {"id": 'a","b":"c'}),
        ("id", {"id": "../x"}),
        ("id", {"id": "x" * 129}),
        ("id", {"id": 5}),
        ("id", {"id": b"a"}),
    ],
    ids=str,
)
async def test_an_option_that_can_never_be_right_is_named_and_nothing_is_sent(
    queue: Queue, field: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.add("paint", None, JobOptions(**options))
    assert refused.value.field == field
    assert await dump(queue.client, queue.keys.prefix) == {}


@pytest.mark.parametrize("name", ["", "x" * 129, "\ud800", 5, None, b"x"], ids=repr)
async def test_a_name_that_is_no_name_is_refused(queue: Queue, name: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.add(name)
    assert refused.value.field == "name"


@pytest.mark.parametrize("name", ["a\nb", '"}', "\x00", "</script>", "名前 🎨", "a b" * 40, "\x7f\x1b[31m"], ids=repr)
async def test_any_unicode_text_may_be_a_name(scene: Scene, name: str) -> None:
    job = await scene.queue.add(name)
    await drain(scene)
    history = await scene.queue.get_history(job.id)
    assert history[0].fields["name"] == name
    found = await scene.queue.get_job(job.id)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("name", ["", "a b", "a:b", "{x}", "a\n", "ä", "x" * 65, "*", "../x"], ids=repr)
async def test_a_queue_name_that_could_leave_its_prefix_is_refused(client: Client, name: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Queue(name, client)
    assert refused.value.field == "queue"


async def test_ids_that_look_special_do_not_collide(scene: Scene) -> None:
    ids = ["a:b", "a", "1", "0", "a:b:c", "state:a", "job:a", "A", "meta", "a@b.c-d_e", "x" * 128]
    for job_id in ids:
        await scene.queue.add("paint", job_id, JobOptions(id=job_id))
    assert await drain(scene) == ids
    await check_queue(scene.queue)
    for job_id in ids:
        job = await scene.queue.get_job(job_id)
        assert job is not None
        assert job.data_as(str) == job_id


@pytest.mark.parametrize("states", ["waiting", ["meta"], ["wait"], [None]], ids=repr)
async def test_only_states_can_be_listed(queue: Queue, states: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.get_jobs(states)
    assert refused.value.field == "states"


@pytest.mark.parametrize(("start", "count"), [(-1, 1), (0, 0), (0, 101), (0.5, 1), (0, True)])
async def test_a_page_has_a_start_and_a_bounded_length(queue: Queue, start: Any, count: Any) -> None:
    with pytest.raises(InvalidOption):
        await queue.get_jobs([JobState.WAITING], start, count)
    with pytest.raises(InvalidOption):
        await queue.get_recent(start, count)


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


async def test_jobs_start_by_priority_then_in_the_order_of_adding_with_none_first(scene: Scene) -> None:
    draw = random.Random(7)
    jobs = [(draw.choice([0, 1, 2, 3, 2**21 - 1]), f"j{n}") for n in range(300)]
    for priority, job_id in jobs:
        await scene.add(job_id, priority=priority)
    expected = [job_id for _, job_id in sorted(jobs, key=lambda job: job[0])]
    listed = [
        job.id for start in range(0, 300, 100) for job in await scene.queue.get_jobs([JobState.WAITING], start, 100)
    ]
    assert listed == expected
    assert await drain(scene) == expected


async def test_lifo_jobs_start_before_the_others_of_their_priority_newest_first(scene: Scene) -> None:
    for job_id, options in {
        "f1": {},
        "l1": {"lifo": True},
        "f2": {},
        "l2": {"lifo": True},
        "p1": {"priority": 1, "lifo": True},
        "p2": {"priority": 1},
        "p3": {"priority": 1, "lifo": True},
    }.items():
        await scene.add(job_id, **options)  # type: ignore[arg-type]
    assert await drain(scene) == ["l2", "l1", "f1", "f2", "p3", "p1", "p2"]


async def test_fifo_is_exact_across_digits_of_the_sequence(scene: Scene) -> None:
    await scene.client.hset(scene.queue.keys.meta, "sequence", 0xFFFFFFFE)
    for number in range(6):
        await scene.add(f"j{number}")
    await scene.client.hset(scene.queue.keys.meta, "sequence", 2**52 - 100)
    for number in range(6, 9):
        await scene.add(f"j{number}")
    assert await drain(scene) == [f"j{number}" for number in range(9)]


async def test_a_delayed_job_becomes_waiting_when_due_in_the_order_of_its_due_time(scene: Scene) -> None:
    await scene.add("late", delay_ms=60_000)
    await scene.add("soon", delay_ms=20_000)
    await scene.add("now")
    job = await scene.queue.get_job("soon")
    assert job is not None
    assert (job.state, job.due_at) == ("delayed", job.created_at + 20_000)
    assert [each.id for each in await scene.queue.get_jobs([JobState.DELAYED])] == ["soon", "late"]
    assert await drain(scene) == ["now"]
    await scene.make_due()
    assert await drain(scene) == ["soon", "late"]
    assert types(await scene.queue.get_history("soon")) == ["added", "waiting", "active", "completed"]
    await check_queue(scene.queue)


async def test_a_claim_says_how_long_until_the_next_delayed_job(scene: Scene) -> None:
    await scene.add("late", delay_ms=60_000)
    assert 50_000 < (await scene.claim()).sleep_ms <= 60_000


async def test_a_job_that_is_due_before_all_others_wakes_a_worker_that_sleeps_too_long(scene: Scene) -> None:
    await scene.add("late", delay_ms=60_000)
    await scene.client.delete(scene.queue.keys.marker)
    await scene.add("later", delay_ms=70_000)
    assert not await scene.client.exists(scene.queue.keys.marker)
    await scene.add("sooner", delay_ms=10_000)
    assert await scene.client.exists(scene.queue.keys.marker)


async def test_promotion_ends_a_delay_and_keeps_the_priority(scene: Scene) -> None:
    await scene.add("a", priority=5)
    await scene.add("d", delay_ms=60_000, priority=3)
    job = await scene.queue.promote("d")
    assert (job.state, job.priority, job.due_at) == ("waiting", 3, None)
    assert await drain(scene) == ["d", "a"]
    with pytest.raises(WrongState):
        await scene.queue.promote("d")
    with pytest.raises(JobNotFound):
        await scene.queue.promote("none")


async def test_a_new_priority_counts_at_once_behind_its_equals(scene: Scene) -> None:
    for job_id, priority in (("a", 5), ("b", 2), ("c", 2)):
        await scene.add(job_id, priority=priority)
    job = await scene.queue.change_priority("a", 2)
    assert (job.priority, job.header.priority) == (2, 5)
    await scene.queue.change_priority("c", 0)
    assert await drain(scene) == ["c", "b", "a"]
    with pytest.raises(WrongState):
        await scene.queue.change_priority("a", 2)
    with pytest.raises(InvalidOption):
        await scene.queue.change_priority("a", -1)


# ── attempts ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_failed_attempt_goes_to_the_back_while_attempts_are_left(scene: Scene) -> None:
    claim = await scene.active("a", attempts=2)
    await scene.add("b")
    assert await scene.finish(claim, "failed", POISON, 0) == "waiting"
    order = []
    for _ in range(2):
        (claim,) = (await scene.claim()).claims
        order.append((claim.job.id, claim.job.attempts_started, claim.job.attempts_made))
        await scene.finish(claim, "failed", POISON, 0)
    assert order == [("b", 1, 0), ("a", 2, 1)]
    job = await scene.queue.get_job("a")
    assert job is not None
    assert (job.state, job.reason, job.attempts_made) == ("failed", "error", 2)
    assert types(await scene.queue.get_history("a")) == ["added", "active", "waiting", "active", "failed"]


async def test_a_pause_before_the_next_attempt_is_a_delay(scene: Scene) -> None:
    claim = await scene.active("a", attempts=2)
    assert await scene.finish(claim, "failed", POISON, 40_000) == "delayed"
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.due_at is not None
    history = await scene.queue.get_history("a")
    assert history[-1].fields["due_at"] == job.due_at == history[-1].at + 40_000
    assert history[-1].fields["error"]["kind"] == "poison"
    await scene.make_due()
    assert await drain(scene) == ["a"]


async def test_a_job_that_did_not_start_in_time_fails_as_expired(scene: Scene) -> None:
    await scene.add("waiting", expires_ms=1000)
    await scene.add("delayed", expires_ms=1000, delay_ms=5000)
    started = await scene.active("started", expires_ms=1000, priority=0, lifo=True)
    await scene.pass_deadlines()
    assert await scene.scripts.promote_jobs(10) == 2
    for job_id in ("waiting", "delayed"):
        job = await scene.queue.get_job(job_id)
        assert job is not None
        assert job.error is not None
        assert (job.state, job.reason, job.error.kind) == ("failed", "expired", "expired")
    await scene.finish(started, "failed", POISON, 0)
    await check_queue(scene.queue)


# ── lost workers ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_job_whose_lease_ran_out_goes_back_to_its_old_place(scene: Scene) -> None:
    await scene.active("a")
    await scene.add("b")
    await scene.end_leases()
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 1
    (claim,) = (await scene.claim()).claims
    assert (claim.job.id, claim.job.stalled, claim.job.attempts_started, claim.job.attempts_made) == ("a", 1, 2, 0)
    assert types(await scene.queue.get_history("a")) == ["added", "active", "stalled", "waiting", "active"]


async def test_a_job_that_loses_its_worker_too_often_fails_with_the_reason(scene: Scene) -> None:
    await scene.add("a", max_stalled=2)
    starts = 0
    while claims := (await scene.claim()).claims:
        starts += len(claims)
        await scene.end_leases()
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.error is not None
    assert (starts, job.state, job.reason, job.error.kind, job.stalled) == (3, "failed", "stalled", "stalled", 3)
    check_history(await scene.queue.get_history("a"))


async def test_the_end_of_a_lost_attempt_is_refused_and_changes_nothing(scene: Scene) -> None:
    late = await scene.active("a")
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    (claim,) = (await scene.claim()).claims
    before = await dump(scene.client, scene.prefix)
    for outcome in ("completed", "failed", "canceled", "returned"):
        assert await scene.finish(late, outcome, POISON, 0) == "LEASE_LOST"
    for call in (
        scene.scripts.update_progress("a", late.lease, Report(9, "", b"1")),
        scene.scripts.add_log("a", late.lease, 9, "x"),
    ):
        with pytest.raises(Exception, match="not held by this token"):
            await call
    assert await scene.scripts.extend_locks(LEASE_MS, 1000, [("a", late.lease)]) == [False]
    assert await dump(scene.client, scene.prefix) == before
    assert await scene.finish(claim) == "completed"
    before = await dump(scene.client, scene.prefix)
    assert await scene.finish(late) == "LEASE_LOST"
    assert await dump(scene.client, scene.prefix) == before, "not even `drained` is told again"


async def test_a_renewal_by_the_holder_is_accepted_at_any_age(scene: Scene) -> None:
    claim = await scene.active("a")
    await scene.end_leases()
    assert await scene.scripts.extend_locks(LEASE_MS, 1000, [("a", claim.lease)]) == [True]
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 0


async def test_after_a_gap_in_the_looks_everyone_gets_a_lease_of_grace(scene: Scene) -> None:
    await scene.active("a")
    await scene.end_leases()
    long_ago = int(await scene.client.hget(scene.queue.keys.meta, "looked_at") or 0) - 100_000
    await scene.client.hset(scene.queue.keys.meta, "looked_at", long_ago)
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 0
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 0
    assert (await scene.claim()).claims == []
    await scene.client.hset(scene.queue.keys.meta, "grace_until", 1)
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 1


async def test_a_grace_longer_than_the_lease_is_cut_to_it_and_still_holds(scene: Scene) -> None:
    """It is of a caller with longer leases, or the clock was set back."""
    await scene.active("a")
    await scene.end_leases()
    in_a_day = int(await scene.client.hget(scene.queue.keys.meta, "looked_at") or 0) + 86_400_000
    await scene.client.hset(scene.queue.keys.meta, "grace_until", in_a_day)
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 0
    assert int(await scene.client.hget(scene.queue.keys.meta, "grace_until") or 0) < in_a_day - 80_000_000


# ── cancel ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delay_ms", [0, 50_000])
async def test_a_job_that_has_not_started_is_canceled_at_once(scene: Scene, delay_ms: int) -> None:
    await scene.add("a", delay_ms=delay_ms)
    job = await scene.queue.cancel("a", by="me", reason="why")
    assert job.cancel is not None
    assert (job.state, job.cancel.by, job.cancel.reason, job.finished_at is None) == ("canceled", "me", "why", False)
    assert (await scene.claim()).claims == []
    history = await scene.queue.get_history("a")
    assert types(history) == ["added", "canceled"]
    assert history[-1].fields == {"cancel": {"by": "me", "reason": "why"}, "details": {}}
    await check_queue(scene.queue)


async def test_a_running_job_is_asked_and_ends_as_canceled_however_its_attempt_ends(scene: Scene) -> None:
    for outcome in ("canceled", "failed", "returned"):
        claim = await scene.active(outcome, attempts=9)
        assert (await scene.queue.cancel(outcome, "me")).state == "active"
        progress = await scene.scripts.update_progress(outcome, claim.lease, Report(1, "", b"1"))
        assert progress is not None
        assert progress.by == "me"
        assert await scene.finish(claim, outcome, POISON, 0) == "canceled"
        job = await scene.queue.get_job(outcome)
        assert job is not None
        assert (job.state, job.error, job.reason) == ("canceled", None, None)
    await check_queue(scene.queue)


async def test_only_a_completion_comes_before_a_cancel(scene: Scene) -> None:
    claim = await scene.active("a")
    await scene.queue.cancel("a")
    assert await scene.finish(claim) == "completed"
    assert types(await scene.queue.get_history("a")) == ["added", "active", "canceling", "completed"]
    with pytest.raises(WrongState):
        await scene.queue.cancel("a")


async def test_a_canceled_job_whose_worker_is_lost_ends_as_canceled(scene: Scene) -> None:
    await scene.active("a")
    await scene.queue.cancel("a")
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    assert types(await scene.queue.get_history("a")) == ["added", "active", "canceling", "stalled", "canceled"]


async def test_a_cancel_and_an_end_at_the_same_time_have_one_outcome(scene: Scene) -> None:
    for number in range(60):
        claim = await scene.active(f"a{number}")
        _, ended = await asyncio.gather(scene.queue.cancel(f"a{number}"), scene.finish(claim), return_exceptions=True)
        assert ended == "completed"
        check_history(await scene.queue.get_history(f"a{number}"))
    await check_queue(scene.queue)


async def test_texts_of_a_cancel_are_clipped_so_that_no_event_exceeds_4_kib(scene: Scene) -> None:
    claim = await scene.active("a")
    await scene.queue.cancel("a", by="\x01" * 5000, reason="🎨\ud800" * 5000)
    await scene.finish(claim, "canceled", json.dumps({"x": "y" * 900}).encode())
    check_history(await scene.queue.get_history("a"))


# ── removal, retention ───────────────────────────────────────────────────────────────────────────────


async def test_a_removed_job_leaves_only_a_tombstone(scene: Scene) -> None:
    claim = await scene.active("a", expires_ms=10_000)
    await scene.scripts.update_progress("a", claim.lease, Report(1, "preview_ready", b"1", b"picture"))
    await scene.scripts.add_log("a", claim.lease, 2, "line")
    with pytest.raises(WrongState):
        await scene.queue.remove("a")
    await scene.finish(claim)
    assert await scene.queue.remove("a")
    assert not await scene.queue.remove("a")
    left = await dump(scene.client, scene.prefix)
    assert set(left) == {"meta", "events", "gone:a", "marker"} & set(left) | {"meta", "events", "gone:a"}
    assert 0 < await scene.client.pttl(f"{scene.prefix}gone:a") <= 60_000
    assert await scene.queue.get_job("a") is None
    with pytest.raises(JobNotFound):
        await scene.queue.get_history("a")


@pytest.mark.parametrize("outcome", ["completed", "failed", "canceled"])
async def test_a_finished_jobs_time_ends_exactly_also_in_an_idle_queue(scene: Scene, outcome: str) -> None:
    kept = {"remove_on_complete": KeepJobs(age_s=1), "remove_on_fail": KeepJobs(age_s=1)}
    claim = await scene.active("a", has_files=True, **kept)
    await scene.scripts.update_progress("a", claim.lease, Report(1, "preview_ready", b"1", b"picture"))
    await scene.scripts.add_log("a", claim.lease, 2, "line")
    await scene.finish(claim, outcome, POISON)
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.finished_at is not None
    assert job.expires_at == job.finished_at + 1000
    assert (await scene.queue.get_counts())[outcome] == 1

    async def is_over() -> bool:
        seconds, micros = await scene.client.time()
        return bool(seconds * 1000 + micros // 1000 > (job.expires_at or 0))

    await wait_until(is_over)
    assert (await scene.queue.get_counts())[outcome] == 0
    assert await scene.queue.get_job("a") is None
    assert await scene.queue.get_preview("a") is None
    assert await scene.queue.get_jobs(list(JobState)) == []
    assert (await scene.queue.get_recent())[0] == []
    with pytest.raises(JobNotFound):
        await scene.queue.retry("a")
    await check_queue(scene.queue)
    for kind in ("job", "state", "log", "lines", "preview"):
        assert not await scene.client.exists(f"{scene.prefix}{kind}:a")
    assert await scene.scripts.remove_expired(10) == 1
    left = await dump(scene.client, scene.prefix)
    assert set(left) - {"marker", "sweep"} == {"meta", "events", "gone:a"}
    assert left.get("sweep") == ([(f"a/1-{claim.lease}", job.expires_at)] if outcome == "completed" else None)
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert (events[-1].type, events[-1].job, events[-1].fields) == ("removed", "a", {"prev": outcome})


async def test_a_count_keeps_the_newest(scene: Scene) -> None:
    for number in range(5):
        await scene.completed(f"c{number}", remove_on_complete=3)
        await scene.failed(f"f{number}", remove_on_fail=KeepJobs(count=2, age_s=1000))
    assert [job.id for job in await scene.queue.get_jobs([JobState.COMPLETED])] == ["c4", "c3", "c2"]
    assert [job.id for job in await scene.queue.get_jobs([JobState.FAILED])] == ["f4", "f3"]
    await check_queue(scene.queue)


async def test_a_job_may_be_removed_with_its_end(scene: Scene) -> None:
    claim = await scene.active("a", remove_on_complete=True)
    await scene.finish(claim, content=b'"%s"' % (b"x" * 5000))
    await scene.add("b", remove_on_fail=True)
    with pytest.raises(JobNotFound, match="canceled"):
        await scene.queue.cancel("b")
    left = await dump(scene.client, scene.prefix)
    assert set(left) - {"marker"} == {"meta", "events", "gone:a", "gone:b", "result:a"}
    assert 0 < await scene.client.pttl(f"{scene.prefix}result:a") <= 60_000


# ── retry ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["completed", "failed", "canceled"])
async def test_a_retry_is_a_new_run_with_fresh_attempts(scene: Scene, state: str) -> None:
    await getattr(scene, state)("a", priority=3, remove_on_complete=KeepJobs(age_s=1000), remove_on_fail=1)
    job = await scene.queue.retry("a")
    assert (job.state, job.run, job.attempts_started, job.attempts_made, job.priority) == ("waiting", 2, 0, 0, 3)
    assert (job.result, job.error, job.cancel, job.finished_at, job.expires_at, job.progress) == (None,) * 6
    assert await scene.client.pttl(f"{scene.prefix}job:a") == -1
    await check_queue(scene.queue)
    assert await drain(scene) == ["a"]
    history = await scene.queue.get_history("a")
    check_history(history)
    assert [event.run for event in history][-3:] == [2, 2, 2]
    assert types(history)[-3:] == ["retried", "active", "completed"]


@pytest.mark.parametrize("state", ["add", "active"])
async def test_only_a_finished_job_can_be_retried(scene: Scene, state: str) -> None:
    await getattr(scene, state)("a")
    with pytest.raises(WrongState):
        await scene.queue.retry("a")
    with pytest.raises(JobNotFound):
        await scene.queue.retry("none")


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_paused_queue_starts_nothing_and_loses_nothing(scene: Scene) -> None:
    running = await scene.active("a")
    for number in range(20):
        await scene.add(f"j{number}")
    await scene.queue.pause()
    assert await scene.queue.is_paused()
    assert (await scene.claim(5)).claims == []
    assert await scene.finish(running) == "completed"
    await scene.add("new")
    assert not await scene.client.exists(scene.queue.keys.marker)
    assert (await scene.queue.get_counts())["waiting"] == 21
    await scene.queue.resume()
    assert await scene.client.exists(scene.queue.keys.marker)
    assert len(await drain(scene)) == 21
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert [event.type for event in events if event.type in ("paused", "resumed")] == ["paused", "resumed"]


async def test_no_more_jobs_run_than_the_global_concurrency(scene: Scene) -> None:
    await scene.queue.set_global_concurrency(2)
    for number in range(4):
        await scene.add(f"j{number}")
    claims = (await scene.claim(9)).claims
    assert len(claims) == 2
    assert (await scene.claim()).claims == []
    ending = Finish(claims[0].job.id, claims[0].lease, "completed", b"1")
    after = await scene.scripts.move_to_finished("t", "w:9", "w", LEASE_MS, INTERVAL_MS, 1, [ending])
    assert [claim.job.id for claim in after.claims] == ["j2"]
    await scene.queue.set_global_concurrency(0)
    assert len((await scene.claim(9)).claims) == 1


async def test_a_slot_that_gets_free_without_a_claim_wakes_a_worker(scene: Scene) -> None:
    await scene.queue.set_global_concurrency(1)
    claim = await scene.active("a")
    await scene.add("b")
    await scene.client.delete(scene.queue.keys.marker)
    await scene.finish(claim)
    assert await scene.client.exists(scene.queue.keys.marker)
    claim = (await scene.claim()).claims[0]
    await scene.add("c", max_stalled=0)
    await scene.finish(claim)
    await scene.claim()
    await scene.add("d")
    await scene.client.delete(scene.queue.keys.marker)
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    assert await scene.client.exists(scene.queue.keys.marker)


async def test_a_rate_limit_holds_in_every_window_however_many_slots_ask(scene: Scene) -> None:
    await scene.queue.set_global_rate_limit(3, 60_000)
    for number in range(8):
        await scene.add(f"j{number}")
    assert len((await scene.claim(2)).claims) == 2
    claims = await scene.claim(9)
    assert len(claims.claims) == 1
    assert 50_000 < claims.sleep_ms <= 60_000
    assert (await scene.claim(9)).claims == []
    await scene.client.lset(f"{scene.prefix}rate", 2, 1)  # the oldest start was long ago
    assert len((await scene.claim(9)).claims) == 1
    await scene.queue.set_global_rate_limit(0, 1)
    assert len((await scene.claim(9)).claims) == 4


async def test_an_empty_window_still_starts_no_more_than_the_limit_in_one_claim(scene: Scene) -> None:
    await scene.queue.set_global_rate_limit(1, 60_000)
    for number in range(8):
        await scene.add(f"j{number}")
    assert len((await scene.claim(4)).claims) == 1


async def test_a_manual_limit_stops_starts_for_its_time(scene: Scene) -> None:
    await scene.add("a")
    await scene.queue.rate_limit(60_000)
    claims = await scene.claim()
    assert claims.claims == []
    assert 50_000 < claims.sleep_ms <= 60_000
    await scene.queue.rate_limit(0)
    assert await drain(scene) == ["a"]


# ── events, history ──────────────────────────────────────────────────────────────────────────────────


async def test_an_event_is_the_same_on_stream_history_live_channel_and_outbox(scene: Scene) -> None:
    live: list[bytes] = []
    async with scene.client.pubsub(ignore_subscribe_messages=True) as channel:
        await channel.subscribe(scene.queue.keys.live)
        claim = await scene.active("a", attempts=2, notify=("added", "active", "progress", "milestone", "completed"))
        await scene.scripts.update_progress("a", claim.lease, Report(1, "", b'{"step":1}'))
        await scene.scripts.update_progress("a", claim.lease, Report(2, "denoised", b"[]"))
        await scene.finish(claim, content=b'{"ok":{}}')

        async def all_came() -> bool:
            if message := await channel.get_message(timeout=0.1):
                live.append(message["data"])
            return len(live) == 6

        await wait_until(all_came)
    history = await scene.queue.get_history("a")
    stream = await scene.queue.events_after("0-0")
    assert stream is not None
    assert types(history) == ["added", "active", "progress", "milestone", "completed"]
    assert [Event.decode_entry(entry) for entry in live] == stream
    assert [event for event in stream if event.job == "a"] == history
    assert stream[-1].type == "drained"
    entries = await scene.client.xrange(scene.queue.keys.outbox)
    outbox = [Event.decode(fields[b"id"].decode(), fields[b"event"]) for _, fields in entries]
    assert outbox == history
    assert {fields[b"data"] for _, fields in entries} == {b'{"x":1}'}
    check_history(history)


async def test_the_outbox_takes_what_was_asked_for_and_gives_up_what_was_acknowledged(scene: Scene) -> None:
    await scene.completed("a", notify=("completed",))
    await scene.completed("b")
    await scene.client.hset(scene.queue.keys.meta, "notify", "failed")
    await scene.failed("c")
    await scene.scripts.create_group("relay")
    read = await scene.client.xreadgroup("relay", "me", {scene.queue.keys.outbox: ">"})
    entries = [(entry_id, json.loads(fields[b"event"])) for _, found in read for entry_id, fields in found]
    assert [(event["type"], event["job"]) for _, event in entries] == [("completed", "a"), ("failed", "c")]
    await scene.scripts.acknowledge("relay", [entries[0][0].decode()])
    assert await scene.client.xlen(scene.queue.keys.outbox) == 1
    assert (await scene.client.xpending(scene.queue.keys.outbox, "relay"))["pending"] == 1


async def test_a_large_result_is_left_out_of_the_event_but_kept_with_the_job(scene: Scene) -> None:
    claim = await scene.active("a")
    result = b'"%s"' % (b"x" * 100_000)
    await scene.finish(claim, content=result)
    history = await scene.queue.get_history("a")
    assert history[-1].fields["result_bytes"] == len(result)
    assert "result" not in history[-1].fields
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.result is not None
    assert bytes(job.result) == result


async def test_drained_is_told_once_for_each_emptying(scene: Scene) -> None:
    one = await scene.active("a")
    two = await scene.active("b")
    await scene.add("d", delay_ms=60_000)
    await scene.finish(one)
    await scene.finish(two)
    await scene.finish(two)
    await scene.finish(await scene.active("c"))
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert types(events).count("drained") == 2


async def test_events_after_an_id_go_on_without_a_gap_or_say_that_they_cannot(scene: Scene) -> None:
    queue = scene.queue
    assert await queue.events_after("0-0") == []
    for number in range(30):
        await scene.add(f"j{number}")
    whole = await queue.events_after("0-0")
    assert whole is not None
    assert [event.job for event in whole] == [f"j{number}" for number in range(30)]
    paged: list[Event] = whole[:1]
    while page := await queue.events_after(paged[-1].id, 7):
        assert len(page) <= 7
        paged += page
    assert paged == whole
    assert await queue.events_after(whole[-1].id) == []
    ms, _ = id_key(whole[-1].id)
    for uncovered in (f"{ms + 10**9}-0", "1-1", f"{ms}-999999"):
        assert await queue.events_after(uncovered) is None
    await scene.client.xtrim(queue.keys.events, maxlen=5, approximate=False)
    assert await queue.events_after(whole[3].id) is None
    assert await queue.events_after("0-0") is None
    assert await queue.events_after(whole[-5].id) == whole[-4:]
    for nonsense in ("", "x", "1", "-", "+", "1-x", "(1-1", f"{2**64}-0", "١-١"):
        with pytest.raises(ValueError, match="is no event id"):
            await queue.events_after(nonsense)


async def test_a_snapshot_is_of_one_instant_and_the_history_goes_on_after_it(scene: Scene) -> None:
    await scene.add("a")
    snapshot = await scene.queue.get_snapshot("a")
    assert snapshot is not None
    assert types(snapshot.history) == ["added"]
    assert snapshot.last_id == snapshot.history[-1].id
    await drain(scene)
    after = await scene.queue.get_history("a", snapshot.last_id)
    assert types(after) == ["active", "completed"]
    assert await scene.queue.get_snapshot("none") is None


async def test_a_waiting_jobs_history_is_told_without_being_stored(scene: Scene) -> None:
    await scene.add("a", delay_ms=30_000, priority=4)
    assert not await scene.client.exists(f"{scene.prefix}log:a")
    implied = await scene.queue.get_history("a")
    await scene.queue.promote("a")
    assert (await scene.queue.get_history("a"))[:1] == implied
    stream = await scene.queue.events_after("0-0")
    assert stream is not None
    assert stream[:1] == implied
    assert implied[0].fields == {"state": "delayed", "due_at": implied[0].at + 30_000, "name": "paint", "priority": 4}


async def test_a_history_is_capped_but_always_has_its_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = await scene.active("a")
    entry = (await scene.client.lrange(f"{scene.prefix}log:a", -1, -1))[0]
    await scene.client.rpush(f"{scene.prefix}log:a", *[entry] * 1998)
    for number in range(1, 4):
        await scene.scripts.update_progress("a", claim.lease, Report(number, "", b"%d" % number))
    await scene.finish(claim)
    assert await scene.client.llen(f"{scene.prefix}log:a") == 2001
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.progress == 3


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
        "waiting": 9, "prioritized": 8, "delayed": 9, "active": 5, "completed": 7, "failed": 7, "canceled": 0,
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
