"""Models in folders, through the real inference process: which are run, and which are refused before they can run."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import UnrecoverableError
from orchestrator.models import built_in_folder
from tests.workers.conftest import generation
from tests.workers.fakes import RecordedJob
from workers.inference import InferenceProcess
from workers.text_to_image import TextToImage

pytestmark = pytest.mark.asyncio(loop_scope="session")

Place = Callable[[str], Path]


@pytest.fixture
def place(tiny_model: Path, other_models: Path) -> Place:
    """Puts a copy of the tiny model where the inference process looks for the model of that name."""
    return lambda name: Path(shutil.copytree(tiny_model, other_models / name))


class TouchesFile:
    """A pickle that, loaded, leaves a trace."""

    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self._canary}",)


async def refused(processor: TextToImage, model: str) -> str:
    with pytest.raises(UnrecoverableError) as refusal:
        await processor(RecordedJob(generation(model=model)))
    return str(refusal.value)


async def test_any_folder_in_diffusers_format_is_a_model(processor: TextToImage, place: Place) -> None:
    place("late-1")
    job = RecordedJob(generation(model="late-1"))
    first = await processor(job)
    assert first.load_ms > 0
    again = await processor(RecordedJob(generation(model="late-1")))
    assert again.load_ms == 0


async def test_pickled_weights_are_refused_and_never_opened(
    processor: TextToImage, place: Place, tmp_path: Path
) -> None:
    unet = place("late-2") / "unet"
    (unet / "diffusion_pytorch_model.safetensors").unlink()
    (unet / "diffusion_pytorch_model.bin").write_bytes(pickle.dumps(TouchesFile(tmp_path / "canary")))
    assert "its unet has only pickled weights" in await refused(processor, "late-2")
    assert not (tmp_path / "canary").exists()


async def test_a_folder_with_code_is_refused_and_its_code_never_run(
    processor: TextToImage, place: Place, tmp_path: Path
) -> None:
    folder = place("late-3")
    canary = tmp_path / "canary"
    (folder / "pipeline.py").write_text(f"open({str(canary)!r}, 'w')")
    assert "it brings code (pipeline.py)" in await refused(processor, "late-3")
    assert not canary.exists()


async def test_a_foreign_class_is_refused(processor: TextToImage, place: Place) -> None:
    index = place("late-4") / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"unet": ["antigravity", "UNet"]}))
    assert "its component 'unet' is of a class that is not on the list" in await refused(processor, "late-4")


async def test_weights_that_are_cut_off_are_not_tried_again(processor: TextToImage, place: Place) -> None:
    weights = place("late-5") / "unet" / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "copy or download it again" in await refused(processor, "late-5")


async def test_weights_of_another_shape_are_not_tried_again(processor: TextToImage, place: Place) -> None:
    config = place("late-6") / "unet" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"cross_attention_dim": 64}))
    assert "model 'late-6' cannot be used: it does not load: " in await refused(processor, "late-6")


async def test_a_missing_folder_says_which(processor: TextToImage, other_models: Path) -> None:
    assert f"{other_models / 'late-7'} has no model_index.json" in await refused(processor, "late-7")


async def test_a_process_with_local_models_only_has_no_connection(
    processor: TextToImage, inference: InferenceProcess
) -> None:
    await processor(RecordedJob(generation()))
    links = [str(entry.readlink()) for entry in Path(f"/proc/{inference.pid}/fd").iterdir()]
    assert links
    assert not [link for link in links if link.startswith("socket:")]


async def test_the_built_in_model_is_one_of_them(processor: TextToImage, other_models: Path) -> None:
    shutil.copytree(built_in_folder() / "model", other_models / "late-8")
    result = await processor(RecordedJob(generation(model="late-8", width=128, height=128)))
    assert (result.images[0].width, result.images[0].height) == (128, 128)
