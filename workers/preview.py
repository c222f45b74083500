"""Small pictures of an unfinished picture, made from its latents without touching them. Imports torch."""

import io
from typing import Any

import torch
from PIL import Image

MAX_LATENT_SIDE = 32  # decoded 32 × 32 → 256 × 256 px with the usual VAE: cheap beside a step of any large model
MAX_SIDE = 256
QUALITY = 70


@torch.no_grad()
def make_preview(pipeline: Any, latents: torch.Tensor) -> bytes | None:
    """A WebP of a few kB, at most 256 px wide or high; None where it cannot be made from these latents.

    latents: (1, channels, height, width) as the pipeline's callback shows them. Packed ones (Flux) have no height and
    width of their own, and a VAE that overflows in half precision gives no finite numbers: both give None.
    """
    if latents.ndim != 4:
        return None
    small = _shrink(_guess(pipeline.scheduler, latents)[:1])
    config = pipeline.vae.config
    small = small / getattr(config, "scaling_factor", 1.0) + (getattr(config, "shift_factor", None) or 0.0)
    picture = pipeline.vae.decode(small.to(pipeline.vae.dtype), return_dict=False)[0][0].float()
    if picture.ndim != 3 or not torch.isfinite(picture).all():
        return None
    return _encode(picture)


def _guess(scheduler: Any, latents: torch.Tensor) -> torch.Tensor:
    """The scheduler's guess of the finished latents where it keeps one (DPM-Solver++ does), else the noisy ones."""
    outputs = getattr(scheduler, "model_outputs", None)
    keeps_guesses = str(getattr(scheduler.config, "algorithm_type", "")).endswith("dpmsolver++")
    if keeps_guesses and isinstance(outputs, list) and outputs and isinstance(outputs[-1], torch.Tensor):
        return outputs[-1] if outputs[-1].shape == latents.shape else latents
    return latents


def _shrink(latents: torch.Tensor) -> torch.Tensor:
    factor = -(-max(latents.shape[-2:]) // MAX_LATENT_SIDE)
    if factor == 1:
        return latents
    shrunk: torch.Tensor = torch.nn.functional.avg_pool2d(latents.float(), factor, ceil_mode=True)
    return shrunk


def _encode(picture: torch.Tensor) -> bytes:
    """picture: float32 (3, height, width) in [-1, 1]."""
    pixels = ((picture / 2 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    image = Image.fromarray(pixels)
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    file = io.BytesIO()
    image.save(file, "WEBP", quality=QUALITY)
    return file.getvalue()
