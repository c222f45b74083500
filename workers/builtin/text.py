"""The text encoder, and its warm-up: small heads read the scene out of its states, then they are thrown away."""

from pathlib import Path
from random import Random

import torch
from diffusers.models.embeddings import TextTimeEmbedding
from torch import Tensor, nn
from torch.nn import functional
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from workers.builtin import tokenizer as tokens
from workers.builtin.captions import LANGUAGES, caption
from workers.builtin.muon import Muon
from workers.builtin.progress import Progress
from workers.builtin.scenes import COLOURS, COUNTS, PAIRS, PLACES, SHAPES, SIZES, WIDTH, Scene, draw_seen

HIDDEN = 128
TIME_DIM = 128
POOL_HEADS = 8
GRID = 8
LAYOUTS = [*PLACES, *PAIRS, *COUNTS]
COLOUR_NAMES = list(COLOURS)
SIZE_NAMES = list(SIZES)
NOTHING = len(SHAPES)


class Reader:
    """The tokenizer and the text encoder together, as training needs them."""

    def __init__(self) -> None:
        self.tokenizer: CLIPTokenizer = tokens.build()
        self.rows = torch.tensor(tokens.shared_rows(self.tokenizer))
        self.encoder = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=len(self.tokenizer),
                hidden_size=HIDDEN,
                intermediate_size=3 * HIDDEN,
                projection_dim=HIDDEN,
                num_hidden_layers=4,
                num_attention_heads=4,
                max_position_embeddings=tokens.MAX_TOKENS,
                hidden_act="gelu",
                bos_token_id=self.tokenizer.bos_token_id,
                eos_token_id=self.tokenizer.eos_token_id,
                pad_token_id=self.tokenizer.pad_token_id,
            )
        )

    def ids(self, captions: list[str]) -> Tensor:
        """Token numbers, padded and mapped to shared embeddings: int64 (n, 32)."""
        batch = self.tokenizer(captions, padding="max_length", truncation=True, max_length=tokens.MAX_TOKENS)
        return self.rows[torch.tensor(batch.input_ids)]

    def states(self, ids: Tensor) -> Tensor:
        """What the denoiser sees: float32 (n, 32, 128)."""
        states: Tensor = self.encoder(ids)[0]
        return states

    @torch.no_grad()
    def share(self) -> None:
        """Copies each concept's embedding to all of its words, so that the stock pipeline needs no mapping."""
        embedding = self.encoder.get_input_embeddings().weight
        embedding.copy_(embedding[self.rows])


class Heads(nn.Module):
    """Reads the scene from the states: a pooled vector names it, and an 8 x 8 grid says what lies where."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = TextTimeEmbedding(HIDDEN, TIME_DIM, num_heads=POOL_HEADS)
        self.queries = nn.Parameter(torch.randn(GRID * GRID, HIDDEN) * 0.5)
        self.attention = nn.MultiheadAttention(HIDDEN, 4, batch_first=True)
        self.cells = nn.Linear(HIDDEN, len(COLOURS) + len(SHAPES) + 1)
        thing = len(COLOURS) + len(SHAPES) + len(SIZES)
        self.widths = [len(COLOURS), len(LAYOUTS)] + [len(COLOURS), len(SHAPES), len(SIZES)] * 2
        self.whole = nn.Linear(TIME_DIM, len(COLOURS) + len(LAYOUTS) + 2 * thing)

    def forward(self, states: Tensor, grid: Tensor, names: Tensor) -> Tensor:
        """The loss of both readings; ``grid`` int64 (n, 64, 2), ``names`` int64 (n, 8)."""
        read, _ = self.attention(self.queries.expand(len(states), -1, -1), states, states, need_weights=False)
        colour, shape = self.cells(read).split([len(COLOURS), len(SHAPES) + 1], dim=-1)
        loss = functional.cross_entropy(colour.flatten(0, 1), grid[..., 0].flatten())
        loss = loss + functional.cross_entropy(shape.flatten(0, 1), grid[..., 1].flatten())
        for scores, target in zip(self.whole(self.pool(states)).split(self.widths, dim=-1), names.T, strict=True):
            loss = loss + 0.1 * functional.cross_entropy(scores, target, ignore_index=-1)
        return loss


def warm_up(reader: Reader, minutes: float, seed: int, weights: tuple[float, float, float]) -> Heads:
    """Teaches the text encoder to say what stands where, before any picture is drawn."""
    torch.manual_seed(seed)
    random = Random(seed)
    heads = Heads()
    named = [*reader.encoder.named_parameters(), *heads.named_parameters()]
    optimiser = Muon(named, ("embedding", "queries", "cells", "whole", "attention.", "pool."), 0.01, 2e-3)
    progress = Progress("text warm-up", minutes)
    step, recent = 0, 0.0
    while progress.fraction < 1.0:
        optimiser.scale(min(1.0, (step + 1) / 50, 1.6 * (1.0 - progress.fraction) + 0.05))
        scenes = [draw_seen(random, weights) for _ in range(64)]
        ids = reader.ids([caption(scene, random.choice(LANGUAGES), random) for scene in scenes])
        grid, names = (torch.tensor(column) for column in zip(*map(targets, scenes), strict=True))
        loss = heads(reader.states(ids), grid, names)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_([parameter for _, parameter in named], 1.0)
        optimiser.step()
        step += 1
        recent = loss.item() if step == 1 else 0.98 * recent + 0.02 * loss.item()
        progress.show(step, f"loss {recent:.4f}")
    return heads


def targets(scene: Scene) -> tuple[list[tuple[int, int]], list[int]]:
    """What the heads must read: colour and shape of each cell, and the names of background, layout and two things."""
    ground = (COLOUR_NAMES.index(scene.background), NOTHING)
    grid = [ground] * (GRID * GRID)
    names = [ground[0], LAYOUTS.index(scene.layout)]
    cell = WIDTH / GRID
    for thing, (x, y) in zip(scene.things, scene.centres, strict=True):
        marks = (COLOUR_NAMES.index(thing.colour), SHAPES.index(thing.shape))
        reach = SIZES[thing.size] * 0.8
        for number in range(GRID * GRID):
            row, column = divmod(number, GRID)
            if abs((column + 0.5) * cell - x) <= reach and abs((row + 0.5) * cell - y) <= reach:
                grid[number] = marks
        names += [*marks, SIZE_NAMES.index(thing.size)]
    return grid, (names + [-1] * 3)[:8]


def save(reader: Reader, heads: Heads, path: Path) -> None:
    """Keeps the warmed-up encoder and the pooling that the denoiser starts from."""
    torch.save({"encoder": reader.encoder.state_dict(), "pool": heads.pool.state_dict()}, path)
