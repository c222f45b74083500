"""Fixtures of the workers' tests: models on disk, and one real inference process for all of them."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.generation import Generation
from orchestrator.storage import LocalStorage
from workers.inference import InferenceProcess
from workers.life import Patience
from workers.protocol import Configure, Source
from workers.text_to_image import TextToImage

# Seconds where a user has minutes: the tests stop and starve processes on purpose.
IMPATIENT = Patience(silence_s=4.0, abandon_s=5.0, tick_s=0.25)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Stable Diffusion folder with random weights: 64 px, a few MB, about 30 ms a step."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    script = Path(__file__).with_name("tiny_model.py")
    subprocess.run([sys.executable, "-W", "ignore", str(script), str(folder)], check=True, capture_output=True)
    return folder


CopyModel = Callable[[str], Path]


@pytest.fixture
def copy_model(tiny_model: Path, tmp_path: Path) -> CopyModel:
    """Makes copies of the tiny model, to be spoiled."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(tiny_model, tmp_path / name))

    return copy


@pytest.fixture(scope="session")
def other_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a test may put models after the inference process was started: `late-1` to `late-9`."""
    return tmp_path_factory.mktemp("other-models")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def inference(tiny_model: Path, other_models: Path) -> AsyncIterator[InferenceProcess]:
    """One real inference process; a test that kills it leaves a new one behind."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    sources = {"tiny": Source(str(tiny_model)), "hub": Source("nobody/nothing", is_hub=True)}
    sources |= {f"late-{number}": Source(str(other_models / f"late-{number}")) for number in range(1, 10)}
    process = InferenceProcess(Configure(sources, "tiny", device="cpu", threads=1, preview_every=2), IMPATIENT)
    yield process
    await process.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def processor(inference: InferenceProcess, storage: LocalStorage) -> TextToImage:
    """The processor over the real inference process."""
    models = ["tiny", "hub", *(f"late-{number}" for number in range(1, 10))]
    return TextToImage(models, storage, [inference])


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """A storage of the test's own."""
    return LocalStorage(tmp_path / "files")


def generation(**changes: object) -> Generation:
    """A small generation for the tiny model."""
    fields: dict[str, object] = {
        "prompt": "a red circle",
        "model": "tiny",
        "width": 64,
        "height": 64,
        "steps": 6,
        "guidance_scale": 2.0,
        "seed": 7,
    }
    return Generation(**(fields | changes))  # type: ignore[arg-type]


async def settled(task: asyncio.Task[object]) -> BaseException | None:
    """Wait for a task; its exception."""
    await asyncio.wait([task], timeout=60)
    return task.exception()
