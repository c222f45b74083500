"""What may be said to a worker, before it runs and while it runs, and what it says of itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.errors import DelayedError, InvalidOption
from orchestrator.job import Job, JobOptions, JobState, KeepJobs
from orchestrator.queue import Queue
from orchestrator.worker import Worker, WorkerEvent
from orchestrator.worker.claimer import BLOCK_S
from tests.conftest import wait_until
from tests.faultproxy import FaultProxy
from tests.lua.scene import Scene
from tests.orchestrator.running import ended, types, until_active
from tests.servers import Server

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def done(job: ActiveJob) -> str:
    return "done"


# ── keeping finished jobs ────────────────────────────────────────────────────────────────────────────


async def kept(queue: Queue, url: str, options: JobOptions, **worker: Any) -> Job | None:
    """What is there of a job after it completed."""
    job = await queue.add("paint", None, options)
    async with Worker(queue.name, done, url, **worker):
        await queue.wait_until_finished(job.id, timeout_s=20)
    return await queue.get_job(job.id)


async def test_the_worker_says_how_long_jobs_are_kept_that_do_not_say_it_themselves(queue: Queue, url: str) -> None:
    assert await kept(queue, url, JobOptions(), remove_on_complete=True) is None
    job = await kept(queue, url, JobOptions(), remove_on_complete=KeepJobs(age_s=60))
    assert job is not None
    assert job.expires_at is not None
    assert job.finished_at is not None
    assert job.expires_at - job.finished_at == 60_000


@pytest.mark.parametrize("own", [False, 5, KeepJobs(age_s=60), KeepJobs()], ids=str)
async def test_what_the_job_says_itself_counts_more(queue: Queue, url: str, own: Any) -> None:
    job = await kept(queue, url, JobOptions(remove_on_complete=own), remove_on_complete=True)
    assert job is not None
    assert job.state is JobState.COMPLETED
    assert (job.expires_at is None) == (own != KeepJobs(age_s=60))


async def test_a_rule_for_completed_jobs_is_none_for_failed_ones(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> None:
        raise ValueError("oh")

    job = await queue.add("paint")
    async with Worker(queue.name, process, url, remove_on_complete=True):
        (found,) = await ended(queue, job.id)
    assert found.state is JobState.FAILED
    gone = await queue.add("paint")
    async with Worker(queue.name, process, url, remove_on_fail=True):
        assert await ended(queue, gone.id) == []


async def test_a_worker_without_a_rule_sends_none(queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await queue.add("paint")
    worker = Worker(queue.name, done, url)
    run = worker.queue.scripts._run
    sent: list[tuple[Any, ...]] = []

    async def recording(name: str, *args: Any) -> Any:
        if name == "move_to_finished":
            sent.append(args)
        return await run(name, *args)

    monkeypatch.setattr(worker.queue.scripts, "_run", recording)
    async with worker:
        await ended(queue, job.id)
    assert [len(args) for args in sent] == [7 + 5]


@pytest.mark.parametrize(
    "options",
    [{"remove_on_complete": -1}, {"remove_on_fail": "x"}, {"max_started_attempts": -1}, {"concurrency": 10_001}],
    ids=str,
)
async def test_what_can_never_be_right_is_refused(queue: Queue, url: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Worker(queue.name, done, url, **options)


# ── changing it while it runs ────────────────────────────────────────────────────────────────────────


class Crowd:
    """A processor whose jobs end when told."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}

    async def process(self, job: ActiveJob) -> None:
        self.running[job.id] = asyncio.Event()
        try:
            await self.running[job.id].wait()
        finally:
            del self.running[job.id]

    def end_one(self) -> None:
        next(event for event in self.running.values() if not event.is_set()).set()


async def test_concurrency_may_be_changed_while_it_runs(queue: Queue, url: str) -> None:
    crowd = Crowd()
    ids = [(await queue.add("paint")).id for _ in range(12)]
    async with Worker(queue.name, crowd.process, url, concurrency=1) as worker:
        await until_active(queue, 1)
        worker.concurrency = 4
        await until_active(queue, 4)
        assert (worker.concurrency, worker.health.active) == (4, 4)
        worker.concurrency = 2
        for _ in range(2):
            crowd.end_one()
        await until_active(queue, 2)
        crowd.end_one()
        await wait_until(lambda: len(crowd.running) == 2 and ids[4] in crowd.running)
        worker.concurrency = 3
        await until_active(queue, 3)
        with pytest.raises(InvalidOption):
            worker.concurrency = 0
        while (await queue.get_counts())["completed"] < len(ids):
            for event in crowd.running.values():
                event.set()
            await asyncio.sleep(0.005)


async def test_an_idle_worker_may_get_more_and_fewer_slots(queue: Queue, url: str) -> None:
    crowd = Crowd()
    async with Worker(queue.name, crowd.process, url, concurrency=8) as worker:
        await wait_until(worker._claimer.is_looking)
        worker.concurrency = 1
        for _ in range(3):
            await queue.add("paint")
        await until_active(queue, 1)
        worker.concurrency = 3
        await until_active(queue, 3)
        await worker.stop(0)


async def test_a_paused_worker_takes_nothing_waits_for_what_runs_and_goes_on(queue: Queue, url: str) -> None:
    crowd = Crowd()
    first = await queue.add("paint")
    second = await queue.add("paint")
    async with Worker(queue.name, crowd.process, url) as worker:
        await until_active(queue)
        pausing = asyncio.create_task(worker.pause())
        await wait_until(lambda: worker.is_paused)
        assert not pausing.done()
        crowd.end_one()
        await pausing
        assert await types(queue, first.id) == ["added", "active", "completed"]
        assert await types(queue, second.id) == ["added"]
        await worker.pause()  # twice is as good as once
        worker.resume()
        await until_active(queue)
        await worker.pause(wait=False)
        assert second.id in crowd.running
        crowd.end_one()


async def test_a_job_claimed_at_the_very_moment_of_a_pause_is_given_back(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(queue.name, done, url)
    claim = worker.queue.scripts.move_to_active
    claimed, go_on = asyncio.Event(), asyncio.Event()

    async def slow_claim(*args: Any) -> Any:
        answer = await claim(*args)
        if answer.claims:
            claimed.set()
            await go_on.wait()
        return answer

    monkeypatch.setattr(worker.queue.scripts, "move_to_active", slow_claim)
    job = await queue.add("paint")
    async with worker:
        await claimed.wait()
        await worker.pause()
        go_on.set()

        async def is_back() -> bool:
            return await types(queue, job.id) == ["added", "active", "waiting"]

        await wait_until(is_back)
        worker.resume()
        await ended(queue, job.id)


async def test_a_paused_worker_leaves_work_to_the_others_and_stops_at_once(queue: Queue, url: str) -> None:
    loop = asyncio.get_running_loop()
    async with Worker(queue.name, done, url) as resting, Worker(queue.name, done, url, name="working"):
        await wait_until(resting._claimer.is_looking)
        await resting.pause()
        for _ in range(20):
            job = await queue.add("paint")
            (job,) = await ended(queue, job.id)
            assert job.worker == "working"
        began = loop.time()
        await resting.stop()
        assert loop.time() - began < BLOCK_S


async def test_close_by_force_hands_back_at_once_also_while_another_stop_waits(queue: Queue, url: str) -> None:
    crowd = Crowd()
    job = await queue.add("paint")
    async with Worker(queue.name, crowd.process, url, stop_grace_s=1000) as worker:
        await until_active(queue)
        patient = asyncio.create_task(worker.close())
        await wait_until(worker._stopping.is_set)
        await worker.close(force=True)
        async with asyncio.timeout(10):
            await patient
    assert await types(queue, job.id) == ["added", "active", "waiting"]


# ── what it says of itself ───────────────────────────────────────────────────────────────────────────


async def test_its_health_tells_the_truth_during_an_outage(
    queue: Queue, server: Server, runtime_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.worker.MAX_SILENT_S", 2.5)
    async with FaultProxy(runtime_folder / f"health-{server.kind}", server.socket) as proxy:
        worker = Worker(queue.name, done, proxy.url)
        assert (worker.is_running, worker.health.is_connected, worker.health.silent_s) == (False, False, None)
        async with worker:
            await wait_until(lambda: worker.health.is_connected)
            async with proxy.blackhole():
                await wait_until(lambda: not worker.health.is_connected)
                assert worker.is_running
            job = await queue.add("paint")
            await ended(queue, job.id)
            assert worker.health.is_connected
        assert not worker.is_running


async def test_listeners_hear_what_happens_and_hurt_nobody(queue: Queue, url: str) -> None:
    heard: list[tuple[str, str, str]] = []
    ready: list[str] = []

    async def process(job: ActiveJob) -> str:
        if job.name == "bad":
            raise ValueError("oh")
        if job.name == "steps" and job.attempt == 1:
            raise DelayedError(0)
        return "fine"

    def note(event: WorkerEvent) -> None:
        assert event.job is not None
        heard.append((event.job.name, event.what, event.error.message if event.error else ""))

    async def slow(event: WorkerEvent) -> None:
        await asyncio.sleep(0)
        ready.append(event.what)
        raise RuntimeError("a listener's own trouble")

    def throws(event: WorkerEvent) -> None:
        raise RuntimeError("a listener's own trouble")

    worker = Worker(queue.name, process, url)
    for what in ("active", "completed", "failed", "delayed"):
        for listener in (throws, slow, note):
            worker.on(what, listener)
    with pytest.raises(InvalidOption):
        worker.on("everything", note)  # type: ignore[arg-type]
    names = ("good", "bad", "steps")
    ids = [(await queue.add(name)).id for name in names]
    async with worker:
        await ended(queue, *ids)
    expected = [
        ("good", "active", ""), ("good", "completed", ""),
        ("bad", "active", ""), ("bad", "failed", "oh"),
        ("steps", "active", ""), ("steps", "delayed", ""), ("steps", "active", ""), ("steps", "completed", ""),
    ]  # fmt: skip
    assert sorted(heard) == sorted(expected)
    assert len(ready) == len(heard)


async def test_a_listener_hears_that_redis_is_away(
    queue: Queue, server: Server, runtime_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Exception | None] = []
    async with FaultProxy(runtime_folder / f"trouble-{server.kind}", server.socket) as proxy:
        worker = Worker(queue.name, done, proxy.url)
        worker.queue.scripts.deadline_s = 0.3
        worker.on("error", lambda event: heard.append(event.problem))
        async with worker:
            await wait_until(lambda: worker.health.is_connected)
            async with proxy.blackhole():
                await wait_until(lambda: len(heard) > 0)
    assert isinstance(heard[0], Exception)


# ── limits of the queue ──────────────────────────────────────────────────────────────────────────────


async def test_the_limits_of_a_queue_can_be_read(scene: Scene) -> None:
    queue = scene.queue
    assert (await queue.get_global_concurrency(), await queue.get_global_rate_limit()) == (0, None)
    assert (await queue.get_rate_limit_ttl(), await queue.is_maxed()) == (0, False)
    await queue.set_global_concurrency(2)
    await queue.set_global_rate_limit(2, 60_000)
    await scene.active("a")
    assert (await queue.get_rate_limit_ttl(), await queue.is_maxed()) == (0, False)
    claim = await scene.active("b")
    assert await queue.is_maxed()
    assert 50_000 < await queue.get_rate_limit_ttl() <= 60_000
    assert await queue.get_global_concurrency() == 2
    assert await queue.get_global_rate_limit() == (2, 60_000)
    await scene.finish(claim)
    assert not await queue.is_maxed()
    await queue.pause()
    assert 50_000 < await queue.get_rate_limit_ttl() <= 60_000
    await queue.set_global_rate_limit(0, 1)
    assert await queue.get_rate_limit_ttl() == 0


async def test_the_log_of_a_job_can_be_cleared(scene: Scene) -> None:
    claim = await scene.active("a")
    for number in range(1, 6):
        await scene.scripts.add_log("a", claim.lease, number, f"line {number}")
    await scene.queue.clear_logs("a", keep=2)
    assert await scene.queue.get_logs("a") == ["line 4", "line 5"]
    await scene.queue.clear_logs("a")
    assert await scene.queue.get_logs("a") == []
    await scene.queue.clear_logs("nobody")
    with pytest.raises(InvalidOption):
        await scene.queue.clear_logs("a", keep=-1)
