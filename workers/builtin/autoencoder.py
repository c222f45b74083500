"""Trains the autoencoder: 128 x 128 pixels to 16 x 16 x 4 latents and back."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import torch
from diffusers import AutoencoderTiny
from torch import Tensor, nn
from torch.nn import functional

from workers.builtin.drawing import pixels
from workers.builtin.muon import Average, Muon
from workers.builtin.progress import Progress
from workers.builtin.scenes import SIZES, WIDTH, Scene, draw_seen

WEIGHTS = (4.0, 3.0, 3.0)
CROP = 64
CROP_SHARE = 0.5
POLISH_SHARE = 0.15
LATENT_NOISE = 0.07


def build() -> AutoencoderTiny:
    """An untrained autoencoder of 32 channels whose weights start at He's scale (the default stalls)."""
    model = AutoencoderTiny(
        encoder_block_out_channels=(32, 32, 32, 32),
        decoder_block_out_channels=(32, 32, 32, 32),
        num_encoder_blocks=(0, 0, 2, 2),
        num_decoder_blocks=(3, 3, 1, 0),
        latent_channels=4,
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for name, parameter in model.named_parameters():
        if name.endswith("conv.4.weight"):
            parameter.data.mul_(0.3)
    model.decoder.layers[-1].weight.data.mul_(0.2)
    return model


def train(folder: Path, minutes: float, seed: int, start: AutoencoderTiny | None = None) -> AutoencoderTiny:
    """Trains on crops, then on whole pictures, then the decoder alone, and saves the average to ``folder``."""
    torch.manual_seed(seed)
    random = Random(seed)
    model = start or build()
    model.to(memory_format=torch.channels_last)
    optimiser = Muon(model.named_parameters(), ("layers.0.", "encoder.layers.8.", "decoder.layers.15."), 0.01, 2e-3)
    average = Average(model, 0.995)
    progress = Progress("autoencoder", minutes)
    step, recent = 0, 0.0
    while progress.fraction < 1.0:
        done = progress.fraction
        whole = done > CROP_SHARE
        polish = done > 1.0 - POLISH_SHARE
        if polish and model.encoder.training:
            model.load_state_dict(average.values)
            model.encoder.requires_grad_(False).eval()
        optimiser.scale(min(1.0, (step + 1) / 100, 2.0 * (1.0 - done) + 0.02))
        batch = pictures(random, 5) if whole else crops(random, 16)
        latents = model.encoder(batch)
        noisy = latents + LATENT_NOISE * torch.randn_like(latents)
        rebuilt = model.decoder(noisy)
        loss = functional.l1_loss(rebuilt, batch) + functional.mse_loss(rebuilt, batch)
        if not polish:
            mean, variance = latents.mean((0, 2, 3)), latents.var((0, 2, 3))
            loss = loss + 0.02 * (mean.square() + (variance - 1.0).square()).mean()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        average.update(model)
        step += 1
        recent = loss.item() if step == 1 else 0.98 * recent + 0.02 * loss.item()
        progress.show(step, f"loss {recent:.4f}")
    model.load_state_dict(average.values)
    model.requires_grad_(True).eval()
    scale(model, random)
    model.save_pretrained(folder, safe_serialization=True)
    return model


def polish(model: AutoencoderTiny, minutes: float, seed: int) -> None:
    """Trains the decoder alone on whole pictures; latents, and all that was trained on them, stay as they are."""
    torch.manual_seed(seed)
    random = Random(seed)
    model.encoder.requires_grad_(False)
    decoder = model.decoder.to(memory_format=torch.channels_last).train()
    optimiser = Muon(decoder.named_parameters(), ("layers.0.", "layers.15."), 0.002, 5e-4)
    average = Average(decoder, 0.998)
    progress = Progress("decoder", minutes)
    step, recent = 0, 0.0
    while progress.fraction < 1.0:
        optimiser.scale(min(1.0, (step + 1) / 100, 1.25 * (1.0 - progress.fraction) + 0.005))
        batch = pictures(random, 4)
        with torch.no_grad():
            latents = model.encoder(batch)
        rebuilt = decoder(latents + LATENT_NOISE * torch.randn_like(latents))
        loss = functional.l1_loss(rebuilt, batch) + 3.0 * functional.mse_loss(rebuilt, batch)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimiser.step()
        average.update(decoder)
        step += 1
        recent = loss.item() if step == 1 else 0.99 * recent + 0.01 * loss.item()
        progress.show(step, f"loss {recent:.4f}")
    decoder.load_state_dict(average.values)
    model.requires_grad_(True).eval()


@torch.no_grad()
def scale(model: AutoencoderTiny, random: Random) -> None:
    """Sets ``scaling_factor`` so that scaled latents have a standard deviation of one."""
    latents = torch.cat([model.encoder(pictures(random, 32)) for _ in range(8)])
    model.register_to_config(scaling_factor=round(1.0 / latents.std().item(), 5))


def pictures(random: Random, count: int) -> Tensor:
    """Drawn pictures as float32 (count, 3, 128, 128) in [-1, 1]."""
    return to_tensor([pixels(draw_seen(random, WEIGHTS), random) for _ in range(count)])


def crops(random: Random, count: int) -> Tensor:
    """Windows of 64 pixels on the edges of things, where all that is hard lies: float32 (count, 3, 64, 64)."""
    windows: list[np.ndarray] = []
    while len(windows) < count:
        scene = draw_seen(random, WEIGHTS)
        picture = pixels(scene, random)
        windows += [picture[y : y + CROP, x : x + CROP] for x, y in _corners(scene, random)]
    return to_tensor(windows[:count])


def to_tensor(arrays: list[np.ndarray]) -> Tensor:
    """uint8 pictures as float32 (n, 3, height, width) in [-1, 1]."""
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float().div(127.5).sub(1.0).contiguous()


def _corners(scene: Scene, random: Random) -> Iterator[tuple[int, int]]:
    for thing, (x, y) in zip(scene.things, scene.centres, strict=True):
        radius = SIZES[thing.size]
        yield (
            _clamp(x + random.uniform(-radius, radius) - CROP / 2),
            _clamp(y + random.uniform(-radius, radius) - CROP / 2),
        )


def _clamp(value: float) -> int:
    return int(min(max(value, 0.0), WIDTH - CROP))
