"""What is refused before anything is loaded. Nothing here imports torch."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workers.trust import ModelIndex, Refused, WeightsMissing, check_folder, check_index, weights_bytes

GOOD: dict[str, Any] = {
    "_class_name": "StableDiffusionPipeline",
    "_diffusers_version": "0.42.1",
    "requires_safety_checker": False,
    "safety_checker": [None, None],
    "scheduler": ["diffusers", "PNDMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}


HEADER = b'{"__metadata__":{"a":"b"},"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
CUT = struct.pack("<Q", len(HEADER)) + HEADER + b"\0\0\0"


def write_model(folder: Path, **changes: object) -> Path:
    """A folder that looks like a model: weights of one empty header each."""
    for name in ("scheduler", "text_encoder", "tokenizer", "unet", "vae"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text("{}")
    for name in ("text_encoder", "unet", "vae"):
        (folder / name / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    (folder / "model_index.json").write_text(json.dumps(GOOD | changes))
    return folder


def test_a_whole_model_of_known_classes_is_accepted(tmp_path: Path) -> None:
    index = check_folder(write_model(tmp_path / "model"))
    assert index.pipeline == "StableDiffusionPipeline"
    assert index.components["unet"] == "UNet2DConditionModel"
    assert "safety_checker" not in index.components
    assert weights_bytes(tmp_path / "model") == 30


@pytest.mark.parametrize(
    "change",
    [
        {"_class_name": "DiffusionPipeline"},
        {"_class_name": "StableDiffusionImg2ImgPipeline"},
        {"_class_name": ["pipeline", "MyPipeline"]},
        {"_class_name": None},
        {"unet": ["my_unet", "MyUNet"]},
        {"unet": ["diffusers", "DiffusionPipeline"]},
        {"unet": ["diffusers.utils", "UNet2DConditionModel"]},
        {"unet": ["os", "system"]},
        {"unet": ["builtins", "eval"]},
        {"unet": ["diffusers", "UNet2DConditionModel", "extra"]},
        {"unet": ["diffusers", ["UNet2DConditionModel"]]},
        {"unet": {"class": "UNet2DConditionModel"}},
        {"unet": []},
        {"text_encoder": ["transformers", "AutoModel"]},
        {"tokenizer": ["transformers", "AutoTokenizer"]},
        {"scheduler": ["diffusers", "scheduling.PNDMScheduler"]},
        {"scheduler": ["diffusers", "PNDMScheduler\n"]},
        {"safety_checker": ["stable_diffusion", "AnythingElse"]},
        {"../elsewhere": ["diffusers", "AutoencoderKL"]},
    ],
)
def test_a_foreign_class_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        check_index(json.dumps(GOOD | change).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'"x"', b"{}" + b" " * 2_000_000, b'{"_class_name": NaN}'])
def test_an_index_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(Refused):
        check_index(text)


@pytest.mark.parametrize(
    ("pipeline", "components"),
    [
        ("StableDiffusionXLPipeline", {"text_encoder_2": ["transformers", "CLIPTextModelWithProjection"]}),
        ("FluxPipeline", {"transformer": ["diffusers", "FluxTransformer2DModel"]}),
        ("StableDiffusion3Pipeline", {"text_encoder_3": ["transformers", "T5EncoderModel"]}),
        ("SanaPipeline", {"vae": ["diffusers", "AutoencoderDC"]}),
        ("StableDiffusionPipeline", {"safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"]}),
    ],
)
def test_the_well_known_families_are_accepted(pipeline: str, components: dict[str, Any]) -> None:
    index = check_index(json.dumps(GOOD | {"_class_name": pipeline} | components).encode())
    assert index == ModelIndex(pipeline, index.components)
    assert set(components) <= set(index.components)


Spoil = Callable[[Path], object]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda model: (model / "pipeline.py").write_text("raise SystemExit"), r"brings code \(pipeline.py\)"),
        (lambda model: (model / "unet" / "my_unet.PY").write_text(""), "brings code"),
        (lambda model: (model / "unet" / "kernel.so").write_bytes(b""), "brings code"),
        (lambda model: (model / "vae" / "model.safetensors").write_bytes(b""), "not a whole safetensors file"),
        (
            lambda model: (model / "vae" / "model.safetensors").write_bytes(struct.pack("<Q", 10 * 2**30) + b"{}"),
            "not a whole safetensors file",
        ),
        (lambda model: (model / "vae" / "model.safetensors").write_bytes(CUT), "has 89 bytes and should have 90"),
        (lambda model: (model / "vae" / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"[]"), "header"),
    ],
)
def test_a_folder_with_code_or_broken_weights_is_refused(spoil: Spoil, words: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    spoil(model)
    with pytest.raises(Refused, match=words):
        check_folder(model)


def test_a_folder_with_pickles_only_is_refused_with_the_way_out(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    (model / "unet" / "model.safetensors").rename(model / "unet" / "diffusion_pytorch_model.bin")
    with pytest.raises(Refused, match=r"only pickled weights .* save the model again with safe_serialization=True"):
        check_folder(model)


def test_a_pickle_beside_safetensors_does_no_harm(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    (model / "unet" / "diffusion_pytorch_model.bin").write_bytes(b"")
    check_folder(model)


def test_missing_weights_and_a_missing_folder_are_told_from_what_must_not_be(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    (model / "unet" / "model.safetensors").unlink()
    with pytest.raises(WeightsMissing, match="its unet has no safetensors weights"):
        check_folder(model)
    with pytest.raises(WeightsMissing, match=r"has no model_index\.json"):
        check_folder(tmp_path / "nothing")


def test_a_link_out_of_the_folder_is_refused_and_one_inside_the_hubs_cache_is_not(tmp_path: Path) -> None:
    model = write_model(tmp_path / "models--a--b" / "snapshots" / "0123")
    weights = model / "unet" / "model.safetensors"
    blob = tmp_path / "models--a--b" / "blobs" / "4567"
    blob.parent.mkdir()
    weights.rename(blob)
    weights.symlink_to(blob)
    with pytest.raises(Refused, match="leads out of the folder"):
        check_folder(model)
    check_folder(model, root=tmp_path / "models--a--b")
