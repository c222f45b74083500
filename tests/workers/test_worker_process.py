"""`python -m workers` on a real queue: a whole worker process, killed and stopped."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from orchestrator.generation import JOB_NAME, GenerationResult
from orchestrator.job import Job, JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.storage import LocalStorage
from tests.conftest import wait_until
from tests.workers.conftest import generation
from tests.workers.test_child import is_running

ROOT = Path(__file__).parents[2]
START_S = 180.0  # of which a busy machine takes most to import torch
OPTIONS = JobOptions(attempts=2, has_files=True)

StartWorker = Callable[..., AbstractAsyncContextManager[asyncio.subprocess.Process]]


@pytest.fixture
def start_worker(url: str, queue_name: str, tiny_model: Path, tmp_path: Path) -> StartWorker:
    """Starts workers of this test's queue that offer the tiny model."""
    environment = os.environ | {
        "KARGAH_REDIS_URL": url,
        "KARGAH_QUEUE": queue_name,
        "KARGAH_DATA_DIR": str(tmp_path),
        "KARGAH_MODELS": str(tiny_model),
        "KARGAH_LEASE_MS": "2000",
        "KARGAH_STOP_GRACE_S": "1",
        "HF_HUB_OFFLINE": "1",
    }

    @asynccontextmanager
    async def start(**changes: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "workers", cwd=ROOT, env=environment | changes, stderr=asyncio.subprocess.PIPE
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    return start


async def state_of(queue: Queue, job: Job) -> Job:
    found = await queue.get_job(job.id)
    assert found is not None
    return found


async def until_state(queue: Queue, job: Job, state: JobState) -> Job:
    async def has_it() -> bool:
        found = await state_of(queue, job)
        assert found.state == state or not found.state.is_finished, found.error
        return found.state == state

    await wait_until(has_it, START_S)
    return await state_of(queue, job)


async def until_step(queue: Queue, job: Job, attempt: int = 1) -> None:
    async def has_begun() -> bool:
        events = await queue.get_history(job.id)
        return any(
            event.type == "progress" and event.attempt == attempt and event.fields["progress"].get("step", 0) > 0
            for event in events
        )

    await wait_until(has_begun, START_S)


async def children_of(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_job_is_painted_canceled_and_survives_the_death_of_its_worker(
    start_worker: StartWorker, queue: Queue, tmp_path: Path
) -> None:
    first = await queue.add(JOB_NAME, generation(), OPTIONS)
    long = await queue.add(JOB_NAME, generation(steps=60), OPTIONS)
    async with start_worker() as worker:
        done = await until_state(queue, first, JobState.COMPLETED)
        result = done.result_as(GenerationResult)
        assert result is not None
        assert result.images[0].path == f"{first.id}/{done.attempt_key}/0.png"
        content = await LocalStorage(tmp_path / "files" / queue.name).read(result.images[0].path)
        assert len(content) == result.images[0].bytes
        types = [event.type for event in await queue.get_history(first.id)]
        names = [event.fields.get("name") for event in await queue.get_history(first.id) if event.type == "milestone"]
        assert types[-1] == "completed"
        assert names == ["model_loaded", "preview_ready", "denoised", "decoded", "stored"]

        (registered,) = await queue.get_workers()
        assert registered.pid == worker.pid
        assert registered.info["device"] == "cpu"
        assert registered.info["vram_bytes"] > 0
        assert len(registered.info["models"]) == 1

        await until_step(queue, long)
        (child,) = await children_of(worker.pid)
        worker.kill()
        await wait_until(lambda: not is_running(child))

    async with start_worker() as worker:
        again = await until_state(queue, long, JobState.COMPLETED)
        assert again.stalled == 1

        canceled = await queue.add(JOB_NAME, generation(steps=150), OPTIONS)
        await until_step(queue, canceled)
        await queue.cancel(canceled.id, by="tester")
        ended = await until_state(queue, canceled, JobState.CANCELED)
        details = (await queue.get_history(ended.id))[-1].fields["details"]
        assert details["phase"] == "denoising"
        assert 0 < details["step"] < details["steps"] == 150

        handed_back = await queue.add(JOB_NAME, generation(steps=150, num_images=4), OPTIONS)
        await until_step(queue, handed_back)
        (child,) = await children_of(worker.pid)
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(worker.wait(), 30) == 0
        assert not is_running(child)
        waiting = await state_of(queue, handed_back)
        assert waiting.state == JobState.WAITING
        assert waiting.attempts_made == 0
        assert not (tmp_path / "files" / queue.name / handed_back.id).exists()


async def test_settings_that_cannot_be_end_the_worker_with_a_clear_line(start_worker: StartWorker) -> None:
    for change, words in (
        ({"KARGAH_MODELS": "/no/such/folder"}, b"kargah worker: KARGAH_MODELS: /no/such/folder is not a folder"),
        ({"KARGAH_THREDS": "1"}, b"kargah worker: KARGAH_THREDS: is not a setting of Kargah"),
    ):
        async with start_worker(**change) as worker:
            _, said = await asyncio.wait_for(worker.communicate(), 30)
            assert worker.returncode == 2
            assert words in said


async def test_a_worker_whose_process_cannot_start_takes_no_job_and_stops_at_once(
    start_worker: StartWorker, queue: Queue
) -> None:
    job = await queue.add(JOB_NAME, generation(), OPTIONS)
    async with start_worker(KARGAH_DEVICE="cuda:99") as worker:
        assert worker.stderr is not None
        line = b""
        while b"inference.failed_to_start" not in line:
            line = await asyncio.wait_for(worker.stderr.readline(), START_S)
        assert b"there is no device 'cuda:99' here; KARGAH_DEVICE may be" in line
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(worker.wait(), 30) == 0
    assert (await state_of(queue, job)).attempts_started == 0
