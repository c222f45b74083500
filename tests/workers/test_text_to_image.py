"""The processor over a real inference process: what becomes of a job, whatever happens to the process."""

import asyncio
import io
import os
import resource
import signal
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image as Pillow
from PIL import ImageChops

from orchestrator.errors import JobCanceled, LeaseLost, OutOfMemory, TransientError, UnrecoverableError
from orchestrator.generation import GenerationResult
from orchestrator.job import JobError
from orchestrator.storage import LocalStorage
from tests.conftest import wait_until
from tests.workers.conftest import generation
from tests.workers.fakes import RecordedJob
from workers.inference import InferenceProcess
from workers.life import Patience
from workers.protocol import Configure
from workers.text_to_image import TextToImage

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = 150  # steps: some seconds


async def paint(processor: TextToImage, storage: LocalStorage, **changes: object) -> list[bytes]:
    result = await processor(RecordedJob(generation(**changes)))
    return [await storage.read(image.path) for image in result.images]


def assert_same_picture(ours: bytes, theirs: bytes) -> None:
    """But for a rounding: a pipeline that was loaded anew lies elsewhere in memory, where some CPUs add otherwise."""
    pictures = [Pillow.open(io.BytesIO(png)) for png in (ours, theirs)]
    difference = ImageChops.difference(*(picture.convert("RGB") for picture in pictures))
    assert max(np.asarray(difference).flat) <= 1
    assert pictures[0].size == pictures[1].size
    assert pictures[0].info == pictures[1].info


async def begun(processor: TextToImage, job: RecordedJob, steps: int = 1) -> "asyncio.Task[GenerationResult]":
    """Start an attempt and wait until it has done so many steps."""
    task = asyncio.create_task(processor(job))
    await wait_until(lambda: task.done() or any(said.get("step", 0) >= steps for said in job.all_progress), 60)
    assert not task.done()
    return task


async def test_a_generation_gives_pictures_with_their_seeds(processor: TextToImage, storage: LocalStorage) -> None:
    job = RecordedJob(generation(num_images=2))
    result = await processor(job)
    assert [image.path for image in result.images] == ["job-1/1-lease.1/0.png", "job-1/1-lease.1/1.png"]
    assert [image.seed for image in result.images] == [7, 8]
    for image in result.images:
        content = await storage.read(image.path)
        assert len(content) == image.bytes
        assert Pillow.open(io.BytesIO(content)).size == (image.width, image.height) == (64, 64)
    assert not result.prompt_truncated


async def test_the_watchers_hear_every_phase_in_order_and_the_bar_never_goes_back(processor: TextToImage) -> None:
    job = RecordedJob(generation(num_images=2))
    await processor(job)
    assert job.milestones == ["model_loaded", "denoised", "decoded", "stored"]
    phases = list(dict.fromkeys(said["phase"] for said in job.all_progress))
    assert phases == ["loading", "encoding", "denoising", "decoding", "storing"]
    steps = [said.get("step", 0) for said in job.all_progress]
    assert steps == sorted(steps)
    assert set(steps) == set(range(13))
    fractions = [said.get("fraction", 0.0) for said in job.all_progress]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(0.98)
    assert all(said["steps"] == 12 for said in job.all_progress)
    denoising = [said for said in job.all_progress if said["phase"] == "denoising" and said.get("step", 0) > 0]
    assert all(said["ms_per_step"] > 0 and said["eta_ms"] >= 0 for said in denoising)


async def test_previews_are_small_webp_pictures_with_number_and_step(processor: TextToImage) -> None:
    job = RecordedJob(generation(num_images=2))
    await processor(job)
    told = job.data_of("preview_ready")
    assert [(one["number"], one["step"]) for one in told] == [(1, 2), (2, 4), (3, 8), (4, 10)]
    assert [one["bytes"] for one in told] == [len(picture) for picture in job.scripts.previews]
    for picture in job.scripts.previews:
        assert len(picture) < 8_000
        assert Pillow.open(io.BytesIO(picture)).format == "WEBP"


async def test_the_same_seed_gives_the_same_bytes_wherever_it_stands(
    processor: TextToImage, storage: LocalStorage
) -> None:
    seven, eight = await paint(processor, storage, num_images=2)
    assert await paint(processor, storage, seed=8) == [eight]
    assert await paint(processor, storage, seed=7) == [seven]
    assert seven != eight


async def test_a_png_says_how_it_was_made(processor: TextToImage, storage: LocalStorage) -> None:
    prompt = "یک دایره قرمز, a circle\n<b>"
    (content,) = await paint(processor, storage, prompt=prompt, negative_prompt="blue", guidance_scale=2.5)
    text = Pillow.open(io.BytesIO(content)).info
    assert text["Software"].startswith("Kargah ")
    assert text["parameters"] == (
        f"{prompt}\nNegative prompt: blue\nSteps: 6, CFG scale: 2.5, Seed: 7, Size: 64x64, Model: tiny"
    )
    made = msgspec.json.decode(str(text["kargah"]))
    assert (made["prompt"], made["seed"], made["model"]) == (prompt, 7, "tiny")


async def test_a_prompt_that_was_cut_is_reported_in_the_result_and_never_logged(
    processor: TextToImage, capfd: pytest.CaptureFixture[str]
) -> None:
    result = await processor(RecordedJob(generation(prompt="secretword " * 10)))
    assert result.prompt_truncated
    captured = capfd.readouterr()
    assert "secretword" not in captured.out + captured.err


async def test_a_canceled_job_stops_within_one_step_and_leaves_the_next_one_clean(
    processor: TextToImage, storage: LocalStorage
) -> None:
    clean = await paint(processor, storage)
    job = RecordedJob(generation(steps=LONG))
    task = await begun(processor, job, steps=2)
    seen = max(said.get("step", 0) for said in job.all_progress)
    job.ask()
    with pytest.raises(JobCanceled) as canceled:
        await task
    details = canceled.value.details
    assert details["phase"] == "denoising"
    assert details["steps"] == LONG
    # One step may end while the word is on its way, one while it is being read.
    assert seen <= details["step"] <= seen + 2
    assert await paint(processor, storage) == clean


async def test_a_job_canceled_before_it_began_is_not_begun(processor: TextToImage) -> None:
    job = RecordedJob(generation())
    job.ask()
    with pytest.raises(JobCanceled) as canceled:
        await processor(job)
    assert canceled.value.details == {"phase": "loading", "step": 0, "steps": 6}
    assert job.milestones == []


async def test_an_attempt_cut_off_by_its_worker_never_meets_the_next_one(
    processor: TextToImage, storage: LocalStorage, inference: InferenceProcess
) -> None:
    clean = await paint(processor, storage)
    pid = inference.pid
    for _ in range(3):
        task = await begun(processor, RecordedJob(generation(steps=LONG)))
        task.cancel()
        assert await paint(processor, storage) == clean
        assert task.cancelled()
    assert inference.pid == pid  # it stopped by itself: nothing had to be killed


async def test_a_lost_lease_ends_the_attempt(processor: TextToImage, storage: LocalStorage) -> None:
    job = RecordedJob(generation())
    job.scripts.is_lost = True
    with pytest.raises(LeaseLost):
        await processor(job)
    assert list(storage.root.glob("**/*.png")) == []


async def test_a_killed_inference_process_costs_one_attempt(
    processor: TextToImage, storage: LocalStorage, inference: InferenceProcess
) -> None:
    clean = await paint(processor, storage)
    task = await begun(processor, RecordedJob(generation(steps=LONG)))
    assert inference.pid is not None
    os.kill(inference.pid, signal.SIGKILL)
    with pytest.raises(TransientError, match="killed by SIGKILL") as died:
        await task
    assert died.value.details == {"signal": "SIGKILL"}
    assert await paint(processor, storage) == clean


async def test_a_stopped_inference_process_is_killed_and_replaced(
    processor: TextToImage, inference: InferenceProcess
) -> None:
    task = await begun(processor, RecordedJob(generation(steps=LONG)))
    pid = inference.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(TransientError, match="no sign of life for 4 s"):
        await task
    await processor(RecordedJob(generation()))
    assert inference.pid != pid


async def test_too_little_memory_is_retried_smaller_and_then_given_up(
    processor: TextToImage, storage: LocalStorage, inference: InferenceProcess
) -> None:
    clean = await paint(processor, storage)
    pid = inference.pid
    assert pid is not None
    # The process limits itself in this way to what was free when it began; here it gets 300 MB more than it holds.
    status = Path(f"/proc/{pid}/status").read_text()
    held = int(status.split("VmData:")[1].split()[0]) * 1024
    limit = resource.prlimit(pid, resource.RLIMIT_DATA)
    assert held < limit[0]
    resource.prlimit(pid, resource.RLIMIT_DATA, (held + 300_000_000, limit[1]))
    try:
        large = generation(width=2048, height=2048, steps=1)
        job = RecordedJob(large)
        with pytest.raises(OutOfMemory, match="2048 × 2048 px with 'tiny'; the next attempt saves memory"):
            await processor(job)
        elsewhere = RecordedJob(large, error=JobError("out_of_memory", "too little memory"))
        for again in (job, elsewhere):
            with pytest.raises(UnrecoverableError, match="even in the way that needs the least") as given_up:
                await processor(again)
            assert given_up.value.details == {"out_of_memory": True}
    finally:
        resource.prlimit(pid, resource.RLIMIT_DATA, limit)
    assert inference.pid == pid
    (picture,) = await paint(processor, storage)
    assert_same_picture(picture, *clean)


async def test_an_unknown_model_is_not_tried_again(processor: TextToImage) -> None:
    with pytest.raises(UnrecoverableError, match=r"'unheard/of' is not offered by this worker; see KARGAH_MODELS"):
        await processor(RecordedJob(generation(model="unheard/of")))


async def test_a_model_that_is_not_on_this_machine_is_not_tried_again_offline(processor: TextToImage) -> None:
    with pytest.raises(UnrecoverableError, match="HF_HUB_OFFLINE is set; run `hf download nobody/nothing`"):
        await processor(RecordedJob(generation(model="hub")))


async def test_a_size_the_model_cannot_do_is_not_tried_again(processor: TextToImage) -> None:
    with pytest.raises(UnrecoverableError, match="have to be divisible by 8"):
        await processor(RecordedJob(generation(width=100)))


async def test_a_process_that_ran_the_model_last_is_taken_again_and_its_model_told_as_warm(
    storage: LocalStorage,
) -> None:
    patience = Patience(step_s=1, abandon_s=1)
    processes = [InferenceProcess(Configure({}, model, "cpu", 1, 0), patience) for model in "ab"]
    processor = TextToImage(["a", "b"], storage, processes)
    for model, expected in (("a", 0), ("b", 1), ("b", 1), ("a", 0)):
        async with processor._free_process(model) as process:
            assert process is processes[expected]
    assert processor.warm_models() == ["a", "b"]


async def test_files_that_cannot_be_stored_cost_one_attempt(processor: TextToImage, storage: LocalStorage) -> None:
    storage.root.write_text("a file where the folder should be")
    with pytest.raises(TransientError, match="the pictures could not be stored: "):
        await processor(RecordedJob(generation()))


async def test_a_job_canceled_while_its_pictures_are_stored_leaves_none(
    inference: InferenceProcess, storage: LocalStorage
) -> None:
    job = RecordedJob(generation(num_images=2))

    class CancelingStorage(LocalStorage):
        async def put(self, path: str, content: bytes, content_type: str) -> None:
            await super().put(path, content, content_type)
            job.ask()

    processor = TextToImage(["tiny"], CancelingStorage(storage.root), [inference])
    with pytest.raises(JobCanceled) as canceled:
        await processor(job)
    assert canceled.value.details == {"phase": "storing", "step": 12, "steps": 12}
    assert list(storage.root.rglob("*")) == []
