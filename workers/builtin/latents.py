"""A growing store of drawn scenes and their latents, from which training takes its batches."""

from random import Random

import torch
from diffusers import AutoencoderTiny
from torch import Tensor

from workers.builtin.autoencoder import to_tensor
from workers.builtin.drawing import pixels
from workers.builtin.scenes import SIZES, WIDTH, Scene, draw_seen

SIDE = 16
LIMIT = 60_000
EMPHASIS = 2.0


class LatentStore:
    """Encodes a few new scenes a step and hands out many: old ones are overwritten when it is full."""

    def __init__(self, autoencoder: AutoencoderTiny, random: Random, weights: tuple[float, float, float]):
        self.encoder = autoencoder.encoder.eval().to(memory_format=torch.channels_last)
        self.factor: float = autoencoder.config.scaling_factor
        self.random = random
        self.weights = weights
        self.scenes: list[Scene] = []
        self.latents = torch.zeros(LIMIT, 4, SIDE, SIDE)
        self.added = 0

    def fill(self, count: int) -> None:
        """Draws and encodes scenes until there are ``count``."""
        while len(self.scenes) < count:
            self.add(min(50, count - len(self.scenes)))

    @torch.no_grad()
    def add(self, count: int) -> None:
        """Draws and encodes ``count`` new scenes."""
        scenes = [draw_seen(self.random, self.weights) for _ in range(count)]
        batch = to_tensor([pixels(scene, self.random) for scene in scenes])
        latents = self.encoder(batch.to(memory_format=torch.channels_last)) * self.factor
        for scene, latent in zip(scenes, latents, strict=True):
            place = self.added % LIMIT
            self.latents[place] = latent
            if place == len(self.scenes):
                self.scenes.append(scene)
            else:
                self.scenes[place] = scene
            self.added += 1

    def take(self, count: int) -> tuple[list[Scene], Tensor]:
        """Scenes and their scaled latents, float32 (count, 4, 16, 16)."""
        places = [self.random.randrange(len(self.scenes)) for _ in range(count)]
        return [self.scenes[place] for place in places], self.latents[places]


def emphasis(scenes: list[Scene]) -> Tensor:
    """How much each latent counts: more where things are, float32 (n, 1, 16, 16), mean one."""
    cell = WIDTH / SIDE
    axis = (torch.arange(SIDE) + 0.5) * cell
    weight = torch.ones(len(scenes), 1, SIDE, SIDE)
    for number, scene in enumerate(scenes):
        for thing, (x, y) in zip(scene.things, scene.centres, strict=True):
            reach = SIZES[thing.size] + cell / 2
            inside = ((axis - y).abs() <= reach)[:, None] & ((axis - x).abs() <= reach)[None, :]
            weight[number, 0][inside] = 1.0 + EMPHASIS
    return weight / weight.mean((1, 2, 3), keepdim=True)
