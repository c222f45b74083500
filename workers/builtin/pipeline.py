"""Loads the finished pipeline for measuring: stock diffusers, one generator a picture, no network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray

from workers.builtin.autoencoder import to_tensor

Picture = NDArray[np.uint8]


def load(folder: Path) -> Any:
    """The stock pipeline in float32 on the processor, without a progress bar."""
    pipeline = DiffusionPipeline.from_pretrained(
        folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def painter(folder: Path, steps: int, guidance: float) -> Callable[[list[tuple[str, int]]], list[Picture]]:
    """Paints batches of (prompt, seed): uint8 (128, 128, 3) each."""
    pipeline = load(folder)

    def paint(batch: list[tuple[str, int]]) -> list[Picture]:
        images = pipeline(
            prompt=[prompt for prompt, _ in batch],
            generator=[torch.Generator().manual_seed(seed) for _, seed in batch],
            num_inference_steps=steps,
            guidance_scale=guidance,
            width=128,
            height=128,
        ).images
        return [np.asarray(image.convert("RGB")) for image in images]

    return paint


@torch.no_grad()
def round_trip(folder: Path, pictures: list[Picture]) -> list[Picture]:
    """The pictures after the autoencoder of the pipeline: the best that any latents can show."""
    autoencoder = load(folder).vae
    shown: list[Picture] = []
    for start in range(0, len(pictures), 20):
        rebuilt = autoencoder.decoder(autoencoder.encoder(to_tensor(pictures[start : start + 20])))
        levels = (rebuilt.clamp(-1.0, 1.0) + 1.0).mul(127.5).round().to(torch.uint8)
        shown += list(levels.permute(0, 2, 3, 1).numpy())
    return shown
