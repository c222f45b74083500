"""What an operator does to many jobs: in steps, safe to interrupt, and nothing left behind."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.deduplication import Deduplication
from orchestrator.duties import FileSweeper
from orchestrator.errors import InvalidOption, JobNotFound, OutcomeUnknown, QueueFull, WrongState
from orchestrator.hub import Hub
from orchestrator.job import JobOptions, JobState, KeepJobs
from orchestrator.queue import Queue
from orchestrator.scripts import Page, Report, Scripts
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.dump import dump, without
from tests.invariants import check_queue
from tests.lua.scenarios.flows import entry
from tests.lua.scene import Scene, drain, types
from tests.orchestrator.running import until_active

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


class Folders:
    """A storage that only notes what was removed."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    async def remove_tree(self, prefix: str) -> None:
        self.removed.append(prefix)


async def some_of_all(scene: Scene) -> list[str]:
    """Two jobs in each state; their ids."""
    for number in range(2):
        await scene.completed(f"done{number}", has_files=True, remove_on_complete=KeepJobs(age_s=1000))
        await scene.failed(f"bad{number}", notify=("failed",))
        await scene.canceled(f"canceled{number}")
    for number in range(2):
        await scene.active(f"active{number}", deduplication=Deduplication(f"k{number}"))
    for number in range(2):
        await scene.add(f"waiting{number}", expires_ms=90_000, deduplication=Deduplication(f"t{number}", 90_000))
        await scene.add(f"delayed{number}", delay_ms=50_000)
    return [f"{kind}{n}" for kind in ("done", "bad", "canceled", "active", "waiting", "delayed") for n in range(2)]


async def keys_of(scene: Scene) -> list[str]:
    """All keys of the queue that the server has."""
    return sorted([key.decode().removeprefix(scene.prefix) async for key in scene.client.scan_iter(f"{scene.prefix}*")])


# ── delays ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_changed_delay_counts_from_now_and_wakes_a_worker_that_slept_for_longer(scene: Scene) -> None:
    await scene.add("a", delay_ms=90_000_000, priority=3)
    await scene.add("b", delay_ms=80_000_000)
    await scene.client.delete(scene.queue.keys.marker)
    job = await scene.queue.change_delay("a", 50_000)
    assert (job.id, job.state, job.priority) == ("a", "delayed", 3)
    assert job == await scene.queue.get_job("a")
    history = await scene.queue.get_history("a")
    assert types(history) == ["added", "delayed"]
    assert history[-1].fields == {"prev": "delayed", "due_at": job.due_at}
    assert job.due_at == history[-1].at + 50_000
    assert await scene.client.exists(scene.queue.keys.marker)
    assert [each.id for each in await scene.queue.get_jobs([JobState.DELAYED])] == ["a", "b"]
    await check_queue(scene.queue)


async def test_a_delay_can_be_ended_by_changing_it_to_none(scene: Scene) -> None:
    await scene.add("a", delay_ms=50_000)
    await scene.queue.change_delay("a", 0)
    assert await drain(scene) == ["a"]


@pytest.mark.parametrize("state", ["add", "active", "completed", "failed", "canceled"])
async def test_only_a_delayed_jobs_delay_can_be_changed(scene: Scene, state: str) -> None:
    await getattr(scene, state)("a")
    with pytest.raises(WrongState, match="delayed"):
        await scene.queue.change_delay("a", 1)
    with pytest.raises(JobNotFound):
        await scene.queue.change_delay("none", 1)


async def test_many_delays_end_at_once_and_no_priority_is_lost(scene: Scene) -> None:
    for number in range(230):
        await scene.add(f"j{number:03}", delay_ms=90_000_000 + number, priority=number % 3)
    assert await scene.queue.promote_jobs(5) == 5
    assert [job.id for job in await scene.queue.get_jobs([JobState.WAITING])] == [
        "j000", "j003", "j001", "j004", "j002",
    ]  # fmt: skip
    assert await scene.queue.promote_jobs() == 225
    assert await scene.queue.promote_jobs() == 0
    order = await drain(scene)
    assert order == [f"j{number:03}" for priority in range(3) for number in range(priority, 230, 3)]


# ── retries ──────────────────────────────────────────────────────────────────────────────────────────


async def test_failed_jobs_are_retried_oldest_first_with_fresh_attempts_and_their_priority(scene: Scene) -> None:
    for number in range(120):
        await scene.failed(f"j{number:03}", priority=number % 2, attempts=2)
    await scene.completed("done")
    assert await scene.queue.retry_jobs(count=3) == 3
    assert [job.id for job in await scene.queue.get_jobs([JobState.WAITING])] == ["j000", "j002", "j001"]
    assert await scene.queue.retry_jobs() == 117
    assert await scene.client.zcard(f"{scene.prefix}dead") == 0
    job = await scene.queue.get_job("j119")
    assert job is not None
    assert (job.run, job.attempts_made, job.stalled, job.priority) == (2, 0, 0, 1)
    await check_queue(scene.queue)
    order = await drain(scene)
    assert order == [f"j{number:03}" for priority in range(2) for number in range(priority, 120, 2)]
    assert await scene.queue.retry_jobs("completed", 2) == 2


async def test_only_jobs_that_ended_before_are_retried_so_none_is_twice(scene: Scene, url: str) -> None:
    for number in range(150):
        await scene.failed(f"j{number}")
    seen: list[str] = []

    async def fail(job: ActiveJob) -> None:
        seen.append(job.id)
        raise RuntimeError("again")

    async with Worker(scene.queue.name, fail, url, concurrency=8):
        assert await scene.queue.retry_jobs() == 150

        async def all_failed() -> bool:
            return (await scene.queue.get_counts())["failed"] == 150

        await wait_until(all_failed)
    assert len(seen) == len(set(seen)) == 150
    assert await scene.queue.retry_jobs(before=1) == 0


async def test_a_record_that_ended_does_not_stop_the_retries_behind_it(scene: Scene) -> None:
    await scene.completed("a", remove_on_complete=KeepJobs(age_s=1000))
    await scene.completed("b")
    await scene.end_retention("a", "completed")
    assert await scene.queue.retry_jobs("completed") == 1
    assert await drain(scene) == ["b"]
    await check_queue(scene.queue)


@pytest.mark.parametrize("state", ["active", "waiting", "", None])
async def test_only_finished_jobs_are_retried(queue: Queue, state: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.retry_jobs(state)
    assert refused.value.field == "state"


# ── drain, clean ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_drain_takes_what_waits_and_nothing_else(scene: Scene) -> None:
    ids = await some_of_all(scene)
    for number in range(210):
        await scene.add(f"more{number}", priority=number % 5)
    assert await scene.queue.drain() == 212
    counts = await scene.queue.get_counts()
    assert (counts["waiting"], counts["delayed"], counts["active"]) == (0, 2, 2)
    assert await scene.queue.drain(delayed=True) == 2
    counts = await scene.queue.get_counts()
    assert (counts["delayed"], counts["active"], counts["completed"], counts["failed"]) == (0, 2, 2, 2)
    assert not await scene.client.exists(f"{scene.prefix}deadlines")
    await check_queue(scene.queue)
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert sum(event.type == "removed" for event in events) == 214
    assert await scene.queue.get_job(ids[8]) is None


async def test_a_clean_takes_the_old_of_one_state(scene: Scene) -> None:
    await some_of_all(scene)
    assert await scene.queue.clean(3_600_000) == 0
    assert await scene.queue.clean(0, 1) == 1
    assert [job.id for job in await scene.queue.get_jobs([JobState.COMPLETED])] == ["done1"]
    assert await scene.queue.clean(0, state="failed") == 2
    assert await scene.queue.clean(0, state=JobState.CANCELED) == 2
    assert await scene.queue.clean(0, state="waiting") == 2
    assert await scene.queue.clean(0, state="delayed") == 2
    counts = await scene.queue.get_counts()
    assert (counts["completed"], counts["active"], sum(counts.values())) == (1, 2, 3)
    assert [path for path, _ in await scene.client.zrange(f"{scene.prefix}sweep", 0, -1, withscores=True)]
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert [event.fields for event in events if event.type == "cleaned"] == [
        {"state": "completed", "count": 1},
        {"state": "failed", "count": 2},
        {"state": "canceled", "count": 2},
        {"state": "waiting", "count": 2},
        {"state": "delayed", "count": 2},
    ]
    await check_queue(scene.queue)


async def test_a_clean_of_waiting_jobs_passes_over_the_young_ones(scene: Scene) -> None:
    """The old ones stand behind 150 young ones of a better priority."""
    for number in range(120):
        await scene.add(f"old{number}", priority=9)
    for number in range(120):
        await scene.change_record(f"old{number}", created_at=1)
    for number in range(150):
        await scene.add(f"young{number}")
    assert await scene.queue.clean(3_600_000, state="waiting") == 120
    assert (await scene.queue.get_counts())["waiting"] == 150


@pytest.mark.parametrize("state", ["active", "waiting-children", "wait", None])
async def test_running_jobs_are_not_cleaned(queue: Queue, state: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.clean(0, state=state)
    assert refused.value.field == "state"


@pytest.mark.parametrize("count", [-1, 1.5, True, "1", 2**60])
async def test_counts_are_whole_numbers(queue: Queue, count: Any) -> None:
    for call in (
        queue.promote_jobs(count),
        queue.retry_jobs(count=count),
        queue.retry_jobs(before=count),
        queue.clean(count),
        queue.clean(0, count),
        queue.trim_events(count),
        queue.set_max_waiting(count),
        queue.change_delay("a", count),
    ):
        with pytest.raises(InvalidOption):
            await call


# ── obliterate ───────────────────────────────────────────────────────────────────────────────────────


async def test_an_obliterated_queue_leaves_no_key(scene: Scene) -> None:
    await some_of_all(scene)
    await scene.queue.set_global_rate_limit(1000, 10_000)
    await scene.queue.set_max_waiting(9)
    for _ in range(2):
        (claim,) = (await scene.claim()).claims
        await scene.scripts.update_progress(claim.job.id, claim.lease, Report(1, "preview_ready", b"1", b"picture"))
        await scene.scripts.add_log(claim.job.id, claim.lease, 2, "line")
        await scene.finish(claim, "returned")
    await scene.scripts.create_group("relay")
    before = await keys_of(scene)
    assert {"events", "outbox", "rate", "meta", "dedup:k0", "dedup:t1", "sweep", "deadlines"} <= set(before)
    storage = Folders()
    with pytest.raises(WrongState, match="2 jobs are running"):
        await scene.queue.obliterate(storage=storage)  # type: ignore[arg-type]
    assert not await scene.queue.is_paused()
    assert await keys_of(scene) == before
    assert await scene.queue.obliterate(force=True, storage=storage) == 12  # type: ignore[arg-type]
    assert await keys_of(scene) == []
    assert len(storage.removed) == 2
    assert await scene.queue.obliterate() == 0


async def test_a_queue_that_is_obliterated_wakes_no_worker_for_a_parent_whose_children_go_first(scene: Scene) -> None:
    await scene.scripts.add_flow(
        "flow", [entry(scene, "root", children=1), entry(scene, "a", 1, "root", children=1), entry(scene, "b", 2, "a")]
    )
    epoch = (await scene.meta())["epoch"]
    assert await scene.scripts.obliterate(epoch, force=False, limit=100, closing_ms=60_000) == 3
    assert await scene.client.exists(scene.queue.keys.marker) == 0


async def test_files_stay_named_until_somebody_with_the_storage_has_deleted_them(scene: Scene) -> None:
    claim = await scene.completed("a", has_files=True, remove_on_complete=KeepJobs(age_s=1000))
    assert await scene.queue.obliterate() == 1
    assert await keys_of(scene) == ["sweep"]
    storage = Folders()
    await FileSweeper(scene.queue, storage).step()  # type: ignore[arg-type]
    assert storage.removed == [f"a/1-{claim.lease}"]
    assert await keys_of(scene) == []


async def test_an_obliterated_queue_begins_another_life(scene: Scene) -> None:
    await scene.completed("a")
    _, last_id = await scene.queue.get_recent()
    first = (await scene.meta())["epoch"]
    await scene.queue.obliterate()
    again = await scene.queue.add("paint", None, JobOptions(id="a"))
    assert not again.duplicated
    assert not await scene.queue.is_paused()
    assert (await scene.meta())["epoch"] > first
    assert await scene.queue.events_after(last_id) is None, "a reader of the life before gets a new snapshot"
    await check_queue(scene.queue)
    assert await drain(scene) == ["a"]


async def test_a_queue_takes_no_jobs_while_it_is_obliterated_but_again_when_that_was_given_up(scene: Scene) -> None:
    await scene.add("a")
    await scene.add("b")
    epoch = (await scene.meta())["epoch"]
    assert await scene.scripts.obliterate(epoch, force=False, limit=1, closing_ms=60_000) == 1
    for call in (
        scene.queue.add("paint"),
        scene.queue.add_bulk([("paint",)]),
        scene.queue.fan_out("paint", None, JobOptions()),
    ):
        with pytest.raises(QueueFull, match="obliterated"):
            await call
    assert (await scene.claim()).claims == []
    await scene.scripts.obliterate("another life", force=True, limit=100, closing_ms=60_000)
    assert await scene.queue.count() == 1
    await scene.change_meta(closing_until=1)
    await scene.queue.add("paint")
    assert await scene.scripts.forget_keys(epoch, ["events"]) == -1
    assert await scene.queue.obliterate() == 2
    assert await keys_of(scene) == []


@pytest.mark.parametrize("step", range(6))
async def test_an_obliteration_that_was_interrupted_is_finished_by_the_next(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Each of its calls is once the one that has its effect but no answer."""
    await some_of_all(scene)
    calls = 0
    run = Scripts._run

    async def lose(self: Scripts, name: str, *args: Any) -> Any:
        nonlocal calls
        answer = await run(self, name, *args)
        calls += 1
        if calls == step + 1:
            raise OutcomeUnknown(name)
        return answer

    monkeypatch.setattr(Scripts, "_run", lose)
    try:
        await scene.queue.obliterate(force=True)
    except OutcomeUnknown:
        await scene.queue.obliterate(force=True)
    assert set(await keys_of(scene)) <= {"sweep"}


async def test_workers_of_an_obliterated_queue_lose_their_jobs_and_go_on(scene: Scene, url: str) -> None:
    queue = scene.queue
    lost: list[str] = []
    go = asyncio.Event()

    async def process(job: ActiveJob) -> str:
        await job.lost.wait()
        lost.append(job.id)
        await go.wait()
        return "too late"

    for number in range(3):
        await queue.add("paint", None, JobOptions(id=f"j{number}"))
    async with Worker(queue.name, process, url, concurrency=2, lease_ms=1500, interval_ms=100):
        await until_active(queue, 2)
        assert await queue.obliterate(force=True) == 3
        await wait_until(lambda: sorted(lost) == ["j0", "j1"])
        go.set()
        job = await queue.add("paint", None, JobOptions(id="next"))
        await until_active(queue)
        assert await queue.get_job("j0") is None
        assert (await queue.get_history(job.id))[-1].type == "active"
        assert await queue.obliterate(force=True) == 1
    assert {key.partition(":")[0] for key in await keys_of(scene)} <= {"answer", "meta"}


async def test_a_watcher_of_an_obliterated_job_is_told(scene: Scene) -> None:
    job = await scene.queue.add("paint")
    async with Hub(scene.queue) as hub, hub.watch(job.id) as watch, asyncio.timeout(10):
        await scene.queue.obliterate()
        assert (await anext(aiter(watch))).type == "removed"


async def test_other_queues_are_left_alone(scene: Scene) -> None:
    other = Queue(f"{scene.queue.name}-other", scene.client)
    await other.add("paint")
    before = await dump(scene.client, other.keys.prefix)
    await scene.add("a")
    await scene.queue.obliterate()
    assert await dump(scene.client, other.keys.prefix) == before


# ── limits, counts, events ───────────────────────────────────────────────────────────────────────────


async def test_a_full_queue_refuses_adds_and_nothing_else(scene: Scene) -> None:
    await scene.queue.set_max_waiting(2)
    running = await scene.active("running", attempts=2)
    await scene.failed("bad")
    await scene.add("a")
    await scene.add("b", delay_ms=50_000)
    before = without(await dump(scene.client, scene.prefix), "meta.looked_at")
    with pytest.raises(QueueFull, match="max_waiting"):
        await scene.queue.add("paint")
    assert without(await dump(scene.client, scene.prefix), "meta.looked_at") == before
    assert (await scene.queue.add("paint", None, JobOptions(id="a"))).duplicated
    assert (await scene.queue.retry("bad")).state == "waiting"
    assert await scene.finish(running, "failed", b'{"kind":"transient","message":"","details":{}}', 0) == "waiting"
    (claim,) = (await scene.claim()).claims
    assert await scene.finish(claim, "returned") == "waiting"
    assert await scene.queue.count() == 4
    await scene.queue.set_max_waiting(0)
    await scene.queue.add("paint")


async def test_waiting_jobs_are_counted_by_priority(scene: Scene) -> None:
    for priority in (0, 0, 3, 3, 3, 2**21 - 1):
        await scene.add(f"j{priority}-{await scene.queue.count()}", priority=priority)
    await scene.add("later", delay_ms=50_000, priority=3)
    assert await scene.queue.get_counts_per_priority([0, 1, 3, 2**21 - 1]) == {0: 2, 1: 0, 3: 3, 2**21 - 1: 1}
    assert await scene.queue.count() == 7
    wrong: list[Any] = [[], [-1], [1.5], [2**21], list(range(501))]
    for priorities in wrong:
        with pytest.raises(InvalidOption):
            await scene.queue.get_counts_per_priority(priorities)


async def test_the_stream_of_events_can_be_trimmed(scene: Scene) -> None:
    await scene.completed("a")
    _, last_id = await scene.queue.get_recent()
    assert await scene.queue.trim_events(1) > 0
    assert await scene.queue.events_after(last_id) == []
    assert await scene.queue.events_after("0-0") is None
    assert types(await scene.queue.get_history("a")) == ["added", "active", "completed"], "a job's own history stays"


async def test_pages_of_many_states_are_read_in_steps(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await some_of_all(scene)
    asked: list[list[JobState]] = []
    get_jobs = scene.scripts.get_jobs

    async def note(states: Sequence[JobState], start: int, count: int) -> Page:
        asked.append(list(states))
        return await get_jobs(states, start, count)

    monkeypatch.setattr(scene.queue.scripts, "get_jobs", note)
    assert sorted(job.id for job in await scene.queue.get_jobs(list(JobState), 0, 100)) == sorted(ids)
    assert [len(states) for states in asked] == [2] * (len(JobState) // 2) + [1] * (len(JobState) % 2)
    asked.clear()
    assert len(await scene.queue.get_jobs(list(JobState), 0, 2)) == len(ids)
    assert len(asked) == 1


async def test_a_page_with_a_record_that_has_just_ended_does_not_look_like_the_last_one(scene: Scene) -> None:
    for number in range(6):
        await scene.completed(f"j{number}", remove_on_complete=KeepJobs(age_s=1000))
    for number in (5, 2):
        for kind in ("job", "state", "log"):
            await scene.client.delete(f"{scene.prefix}{kind}:j{number}")
    for state in (None, JobState.COMPLETED):
        seen: list[str] = []
        start = 0
        while (page := await scene.queue.get_page(start, 2, state)).looked:
            seen += [job.id for job in page.jobs]
            start += page.looked
        assert seen == ["j4", "j3", "j1", "j0"]


async def test_a_call_on_a_job_answers_with_the_job_as_it_left_it(scene: Scene) -> None:
    await scene.add("a", delay_ms=50_000, priority=4, remove_on_fail=True, data=b'{"of":"a cat"}')
    for call in (
        scene.queue.change_priority("a", 7),
        scene.queue.change_delay("a", 60_000),
        scene.queue.promote("a"),
    ):
        assert await call == await scene.queue.get_job("a")
    gone = await scene.queue.cancel("a", "me", "why")
    assert await scene.queue.get_job("a") is None
    assert (gone.id, gone.state, gone.priority, gone.name, bytes(gone.data)) == (
        "a", "canceled", 7, "paint", b'{"of":"a cat"}',
    )  # fmt: skip
    assert gone.cancel is not None
    assert (gone.cancel.by, gone.cancel.reason, gone.finished_at is not None) == ("me", "why", True)
