"""The models that are offered: what each is called, where its weights lie, and its defaults. Loads nothing."""

import importlib.util
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from orchestrator.errors import InvalidOption
from orchestrator.generation import ModelCard
from orchestrator.settings import Settings

BUILT_IN = "kargah/shapes"
SETTING = "KARGAH_MODELS"  # what an error here names
MAX_INDEX_BYTES = 1_048_576

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")

# What a family of models wants where it differs from Stable Diffusion 1's 512 px, 30 steps and guidance 7.5; the first
# name that is found in the id decides. Source: the families' own model cards on the hub.
_FAMILIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("flux.1-schnell", {"width": 1024, "height": 1024, "steps": 4, "guidance_scale": 0.0, "max_prompt_tokens": 256}),
    ("flux", {"width": 1024, "height": 1024, "steps": 28, "guidance_scale": 3.5, "max_prompt_tokens": 512}),
    ("sdxl-turbo", {"width": 512, "height": 512, "steps": 2, "guidance_scale": 0.0, "max_prompt_tokens": 77}),
    ("sd-turbo", {"width": 512, "height": 512, "steps": 2, "guidance_scale": 0.0, "max_prompt_tokens": 77}),
    ("stable-diffusion-3.5-large-turbo", {"width": 1024, "height": 1024, "steps": 4, "guidance_scale": 0.0}),
    ("stable-diffusion-3", {"width": 1024, "height": 1024, "steps": 28, "guidance_scale": 5.0}),
    ("stable-diffusion-2", {"width": 768, "height": 768, "max_prompt_tokens": 77}),
    ("xl", {"width": 1024, "height": 1024, "guidance_scale": 5.0, "max_prompt_tokens": 77}),
    ("pixart", {"width": 1024, "height": 1024, "steps": 20, "guidance_scale": 4.5, "max_prompt_tokens": 300}),
    ("sana", {"width": 1024, "height": 1024, "steps": 20, "guidance_scale": 4.5, "max_prompt_tokens": 300}),
    ("stable-diffusion", {"max_prompt_tokens": 77}),
)


class OfferedModel(msgspec.Struct, frozen=True):
    """A model of the settings.

    `location` is a folder in diffusers' format, or for `hub` the id under which the hub has it.
    """

    card: ModelCard
    source: Literal["built-in", "folder", "hub"]
    location: str


def offered_models(settings: Settings) -> tuple[OfferedModel, ...]:
    """The models of `settings.models`, the default first. Raises `InvalidOption` that says what to do."""
    if not settings.models:
        raise InvalidOption(SETTING, "names no model; leave it unset for the built-in one")
    models = tuple(_offer(name) for name in settings.models)
    ids = [model.card.id for model in models]
    for number, model_id in enumerate(ids):
        if model_id in ids[:number]:
            raise InvalidOption(SETTING, f"has two models called {model_id!r}; give one an `id` in its card.json")
    return models


def load_cards(settings: Settings) -> list[ModelCard]:
    """The cards of the offered models, the default first."""
    return [model.card for model in offered_models(settings)]


def built_in_folder() -> Path:
    """The folder that holds the built-in model's `card.json` and its pipeline `model/`.

    It is package data of `workers.builtin`. Nothing in the orchestrator may import the workers (the api must start
    without torch, and could run where no worker is installed), so the package is located by name and not imported.
    """
    try:
        found = importlib.util.find_spec("workers.builtin")
    except ModuleNotFoundError:
        found = None
    if found is None or not found.submodule_search_locations:
        raise InvalidOption(SETTING, f"{BUILT_IN} is not installed here; name another model")
    return Path(next(iter(found.submodule_search_locations)))


def _offer(name: str) -> OfferedModel:
    if name == BUILT_IN:
        folder = built_in_folder()
        return OfferedModel(_read_card(folder / "card.json", {"id": BUILT_IN}), "built-in", str(folder / "model"))
    if name.startswith(("/", ".", "~")):
        folder = Path(name).expanduser().absolute()
        defaults = {"id": folder.name, **_read_defaults(folder)}
        return OfferedModel(_read_card(folder / "card.json", defaults), "folder", str(folder))
    if _HUB_ID.fullmatch(name):
        return OfferedModel(_hub_card(name), "hub", name)
    raise InvalidOption(SETTING, f"{name!r} is neither a hub id (owner/name) nor a folder (begins with /, ./ or ~)")


def _read_card(file: Path, defaults: dict[str, Any]) -> ModelCard:
    """The card in `file`, where there is one; what it leaves out comes from `defaults`."""
    fields = defaults | (_read_object(file) if file.is_file() else {})
    try:
        return msgspec.convert(fields, ModelCard)
    except msgspec.ValidationError as problem:
        raise InvalidOption(SETTING, f"{file} is not a model card: {problem}") from None


def _read_defaults(folder: Path) -> dict[str, Any]:
    """Size and prompt length as diffusers' pipelines derive them: sample size × the VAE's reduction."""
    if not folder.is_dir():
        raise InvalidOption(SETTING, f"{folder} is not a folder")
    if not (folder / "model_index.json").is_file():
        raise InvalidOption(SETTING, f"{folder} has no model_index.json: no pipeline in diffusers' format")
    found: dict[str, Any] = {}
    denoiser = _read_config(folder, "unet/config.json") or _read_config(folder, "transformer/config.json")
    vae = _read_config(folder, "vae/config.json")
    size, blocks = denoiser.get("sample_size"), vae.get("block_out_channels")
    if isinstance(size, int) and isinstance(blocks, list) and blocks:
        found["width"] = found["height"] = size * 2 ** (len(blocks) - 1)
    tokens = _read_config(folder, "tokenizer/tokenizer_config.json").get("model_max_length")
    if isinstance(tokens, int) and tokens < 100_000:  # transformers writes 10^30 for "no limit"
        found["max_prompt_tokens"] = tokens
    return found


def _read_config(folder: Path, name: str) -> dict[str, Any]:
    return _read_object(folder / name) if (folder / name).is_file() else {}


def _read_object(file: Path) -> dict[str, Any]:
    if file.stat().st_size > MAX_INDEX_BYTES:
        raise InvalidOption(SETTING, f"{file} is too large to be a description")
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError as problem:
        raise InvalidOption(SETTING, f"{file} cannot be read: {problem}") from None


def _hub_card(name: str) -> ModelCard:
    lowered = name.lower()
    for part, defaults in _FAMILIES:
        if part in lowered:
            return ModelCard(id=name, **defaults)
    return ModelCard(id=name)
