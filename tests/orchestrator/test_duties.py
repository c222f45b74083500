"""What is looked after without being asked: by any number of processes, through errors."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator import service
from orchestrator.duties import (
    BATCH,
    DueJobsPromoter,
    ExpiredRemover,
    FileSweeper,
    OrphanSweeper,
    ServerInspector,
    StalledChecker,
)
from orchestrator.job import JobState, KeepJobs
from orchestrator.queue import Queue
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.lua.scene import Scene
from tests.servers import Server


class Folders:
    """A storage that only remembers which trees were removed."""

    def __init__(self, attempts: tuple[str, ...] = ()) -> None:
        self.removed: list[str] = []
        self._attempts = attempts

    async def put(self, path: str, content: bytes, content_type: str) -> None:
        raise NotImplementedError

    async def get(self, path: str) -> object:
        raise NotImplementedError

    async def read(self, path: str) -> bytes:
        raise NotImplementedError

    async def remove_tree(self, prefix: str) -> None:
        self.removed.append(prefix)

    async def list_attempts(self, older_than_s: float) -> AsyncIterator[str]:
        for path in self._attempts:
            yield path


async def test_all_duties_are_done_by_three_processes_at_once_without_doing_anything_twice(scene: Scene) -> None:
    for number in range(10):
        await scene.completed(f"old{number}", remove_on_complete=KeepJobs(age_s=1000))
        await scene.end_retention(f"old{number}", "completed")
    for number in range(30):
        await scene.add(f"due{number}", delay_ms=1000)
    await scene.make_due()
    async with service.duties(scene.queue), service.duties(scene.queue), service.duties(scene.queue):

        async def are_done() -> bool:
            return (await scene.queue.get_counts())["delayed"] == 0 and not await scene.client.exists(
                f"{scene.prefix}completed"
            )

        await wait_until(are_done)
    await check_queue(scene.queue)
    events = await scene.queue.events_after("0-0")
    assert events is not None
    told = [(event.type, event.job) for event in events if event.type in ("waiting", "removed")]
    assert len(told) == len(set(told)) == 40


async def test_a_full_batch_asks_for_another_step_at_once(scene: Scene) -> None:
    for number in range(BATCH + 1):
        await scene.add(f"j{number}", delay_ms=1000)
    await scene.make_due()
    promoter = DueJobsPromoter(scene.queue)
    assert [await promoter.step(), await promoter.step(), await promoter.step()] == [True, False, False]


async def test_a_stalled_job_and_an_expired_record_are_found(scene: Scene) -> None:
    await scene.active("a")
    await scene.end_leases()
    assert not await StalledChecker(scene.queue).step()
    assert [job.id for job in await scene.queue.get_jobs([JobState.WAITING])] == ["a"]
    await scene.completed("b", lifo=True, remove_on_complete=KeepJobs(age_s=1000))
    await scene.end_retention("b", "completed")
    assert not await ExpiredRemover(scene.queue).step()
    await check_queue(scene.queue)


async def test_the_files_of_jobs_that_are_gone_are_deleted_and_forgotten(scene: Scene) -> None:
    storage = Folders()
    claim = await scene.completed("a", has_files=True)
    kept = await scene.completed("b", has_files=True, remove_on_complete=KeepJobs(age_s=1000))
    await scene.completed("c")
    for job_id in ("a", "c"):
        await scene.queue.remove(job_id)
    sweeper = FileSweeper(scene.queue, storage)  # type: ignore[arg-type]
    assert not await sweeper.step()
    assert storage.removed == [f"a/1-{claim.lease}"]
    assert await scene.client.zrange(f"{scene.prefix}sweep", 0, -1) == [f"b/1-{kept.lease}".encode()]


async def test_a_retry_gives_up_the_pictures_of_the_run_before(scene: Scene) -> None:
    storage = Folders()
    claim = await scene.completed("a", has_files=True)
    await scene.queue.retry("a")
    await FileSweeper(scene.queue, storage).step()  # type: ignore[arg-type]
    assert storage.removed == [f"a/1-{claim.lease}"]


async def test_files_that_no_job_adopted_are_deleted_and_others_are_not(scene: Scene) -> None:
    done = await scene.completed("done", has_files=True)
    running = await scene.active("running", has_files=True)
    failed = await scene.failed("failed", has_files=True)
    orphans = ("done/1-other.1", "gone/1-x.1", f"failed/1-{failed.lease}")
    storage = Folders((f"done/1-{done.lease}", f"running/1-{running.lease}", *orphans))
    await OrphanSweeper(scene.queue, storage).step()  # type: ignore[arg-type]
    assert storage.removed == list(orphans)


async def test_a_duty_that_fails_is_done_again_and_disturbs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PAUSE_AFTER_ERROR_S", 0.01)

    class Counting:
        interval_s = 0.01

        def __init__(self, problem: Exception | None) -> None:
            self.steps = 0
            self._problem = problem

        async def step(self) -> bool:
            self.steps += 1
            if self._problem:
                raise self._problem
            return False

    duties = [Counting(None), Counting(OSError("away")), Counting(ZeroDivisionError("a mistake"))]
    async with service.run(duties):
        await wait_until(lambda: all(duty.steps > 3 for duty in duties))
    steps = [duty.steps for duty in duties]
    await asyncio.sleep(0)
    assert [duty.steps for duty in duties] == steps


async def test_a_server_that_would_delete_jobs_when_it_is_full_is_named_loudly_and_once(
    runtime_folder: Path, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("valkey", runtime_folder / queue_name, "--maxmemory-policy", "allkeys-lru")
    server.start()
    async with Queue(queue_name, server.url) as queue:
        inspector = ServerInspector(queue)
        async with service.duties(queue):
            await wait_until(lambda: "server.unsafe" in caplog.text)
        caplog.clear()
        await inspector.step()
        await inspector.step()
        assert caplog.text.count("server.unsafe") == 1
        server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await inspector.step()
        server.ask("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        await inspector.step()
        assert caplog.text.count("server.unsafe") == 2
    server.stop()
