"""Models on a device: found, checked, loaded by the one path for all of them, kept, and dropped. Imports diffusers."""

import os
import time
from pathlib import Path
from typing import Any

import huggingface_hub
import msgspec
from diffusers import DiffusionPipeline
from diffusers.utils import logging as diffusers_logging
from huggingface_hub import errors as hub

from workers.device import Device
from workers.protocol import Source
from workers.trust import ModelIndex, Refused, WeightsMissing, check_folder, check_index, weights_bytes
from workers.vram import MemoryBudget

diffusers_logging.disable_progress_bar()


class HubUnreachable(Exception):
    """The hub did not answer; it may later."""


class Loaded(msgspec.Struct, frozen=True):
    """A model on the device. `load_ms` is what bringing it there took just now: 0 if it was there."""

    pipeline: Any
    load_ms: int


class Pipelines:
    """The models of one device, loaded when needed and kept while the memory budget allows."""

    def __init__(self, sources: dict[str, Source], device: Device) -> None:
        self._sources = sources
        self._device = device
        self._pipelines: dict[str, Any] = {}
        self._sliced: set[str] = set()
        self.budget = MemoryBudget(device.budget_bytes, device.bytes_per_number)

    def get(self, model: str, pixels: int = 0, economy: bool = False) -> Loaded:
        """The pipeline of `model`, with room beside it for a picture of so many pixels.

        In `economy` it stands alone on the device and works in slices. Raises `Refused` for what no other try mends,
        and `HubUnreachable`.
        """
        began = time.perf_counter()
        load_ms = 0
        if model not in self._pipelines:
            folder, index = self._find(model)
            economy = self._make_room(model, self._expected_bytes(folder), pixels, economy)
            self._pipelines[model] = load_pipeline(folder, index, self._device)
            self.budget.loaded(model, _held_bytes(self._pipelines[model]))
            load_ms = max(1, round((time.perf_counter() - began) * 1000))
        else:
            economy = self._make_room(model, 0, pixels, economy)
        self.budget.used(model)
        if economy:
            self._sliced.add(model)
            _work_in_slices(self._pipelines[model])
        return Loaded(self._pipelines[model], load_ms)

    def done_with(self, model: str) -> None:
        """An attempt has ended. A pipeline that works in slices goes: no later picture is made in that state."""
        if model in self._sliced:
            self.drop(model)

    def drop(self, model: str) -> None:
        """Take `model` off the device."""
        self._pipelines.pop(model, None)
        self._sliced.discard(model)
        self.budget.dropped(model)
        self._device.release()

    def _find(self, model: str) -> tuple[Path, ModelIndex]:
        source = self._sources.get(model)
        if source is None:
            raise Refused("this worker does not offer it; add it to KARGAH_MODELS")
        return find_model(source)

    def _make_room(self, model: str, weights_bytes: int, pixels: int, economy: bool) -> bool:
        """Drop what must go; whether the job has to save memory."""
        plan = self.budget.plan(model, weights_bytes, pixels)
        for other in self.budget.kept if economy else plan.evict:
            if other != model:
                self.drop(other)
        return economy or plan.economy

    def _expected_bytes(self, folder: Path) -> int:
        """Before it is loaded: the files' size, which are in half precision as a rule."""
        return weights_bytes(folder) * self._device.bytes_per_number // 2


def find_model(source: Source) -> tuple[Path, ModelIndex]:
    """Where the model lies on this machine, checked; a model of the hub is downloaded if it must be.

    Raises `Refused`, and `HubUnreachable` if another try may succeed.
    """
    if not source.is_hub:
        folder = Path(source.location)
        return folder, check_folder(folder)
    try:
        return _check_snapshot(huggingface_hub.snapshot_download(source.location, local_files_only=True))
    except (hub.LocalEntryNotFoundError, WeightsMissing):
        return _check_snapshot(_download(source.location))


def load_pipeline(folder: Path, index: ModelIndex, device: Device) -> Any:
    """Load a checked folder onto the device. Raises `Refused` for one that is not what it says it is."""
    try:
        pipeline = DiffusionPipeline.from_pretrained(
            str(folder),
            local_files_only=True,
            use_safetensors=True,
            dtype=device.dtype("transformer" in index.components),
        )
    except (AttributeError, ImportError, KeyError, TypeError, ValueError) as problem:
        raise Refused(f"it does not load: {problem}") from problem
    if type(pipeline).__name__ != index.pipeline:
        raise Refused(f"it says {index.pipeline} and loads as {type(pipeline).__name__}")
    pipeline.to(device.name)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _check_snapshot(snapshot: str) -> tuple[Path, ModelIndex]:
    folder = Path(snapshot)  # …/models--owner--name/snapshots/<commit>, its files linked to …/models--owner--name/blobs
    return folder, check_folder(folder, root=folder.parent.parent)


def _download(hub_id: str) -> str:
    """Fetch a model, its index first: nothing else of a model that would be refused is ever fetched."""
    try:
        index_file = huggingface_hub.hf_hub_download(hub_id, "model_index.json")
        check_index(Path(index_file).read_bytes())
        return str(DiffusionPipeline.download(hub_id, use_safetensors=True))
    except hub.GatedRepoError:
        raise Refused("the hub gives it only to people who accepted its licence; do so and set HF_TOKEN") from None
    except hub.RepositoryNotFoundError:
        raise Refused("the hub has no such model, or it is private and HF_TOKEN is not set") from None
    except hub.LocalEntryNotFoundError:
        if os.environ.get("HF_HUB_OFFLINE", "0") in ("", "0"):
            raise HubUnreachable("it is not on this machine and the hub cannot be reached") from None
        raise Refused(f"it is not on this machine and HF_HUB_OFFLINE is set; run `hf download {hub_id}`") from None
    except hub.EntryNotFoundError:
        raise Refused("the hub has it, but not as a pipeline in diffusers' format (no model_index.json)") from None
    except (hub.HfHubHTTPError, ConnectionError, TimeoutError) as problem:
        raise HubUnreachable(f"the hub did not give it: {problem}") from None


def _work_in_slices(pipeline: Any) -> None:
    """Less memory for more time."""
    pipeline.enable_attention_slicing("max")
    for method in ("enable_slicing", "enable_tiling"):
        if hasattr(pipeline.vae, method):
            getattr(pipeline.vae, method)()


def _held_bytes(pipeline: Any) -> int:
    modules = [part for part in pipeline.components.values() if hasattr(part, "parameters")]
    tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
