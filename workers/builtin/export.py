"""Writes the trained parts as one stock Stable Diffusion folder in fp16, whole or not at all."""

import json
import shutil
from copy import deepcopy
from pathlib import Path

import torch
from diffusers import AutoencoderTiny, StableDiffusionPipeline, UNet2DConditionModel

from workers.builtin.denoiser import scheduler
from workers.builtin.text import Reader

KEPT = "README.md"


def export(folder: Path, reader: Reader, autoencoder: AutoencoderTiny, denoiser: UNet2DConditionModel) -> None:
    """Replaces ``folder`` by the pipeline of these parts; its model card stays."""
    reader.share()
    pipeline = StableDiffusionPipeline(
        vae=deepcopy(autoencoder).to(torch.float16),
        text_encoder=deepcopy(reader.encoder).to(torch.float16),
        tokenizer=reader.tokenizer,
        unet=deepcopy(denoiser).to(torch.float16),
        scheduler=scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    pipeline.save_pretrained(unfinished, safe_serialization=True)
    for path in unfinished.rglob("*.json"):
        tidy(path)
    for path in unfinished.rglob("*.safetensors"):
        path.chmod(0o644)
    if (folder / KEPT).exists():
        shutil.copy(folder / KEPT, unfinished / KEPT)
    swap(unfinished, folder)


def tidy(path: Path) -> None:
    """Blanks the place of origin that ``save_pretrained`` writes, and drops a key that AutoencoderTiny warns about."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if "_name_or_path" in content:
        content["_name_or_path"] = ""
    if content.get("_class_name") == "AutoencoderTiny":
        content.pop("block_out_channels", None)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def swap(new: Path, place: Path) -> None:
    """Moves a finished folder to its place; readers see the old one or the new one."""
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
