"""Trains the built-in model from nothing to a finished folder: autoencoder, text encoder, denoiser, decoder."""

import argparse
import sys
from functools import partial
from pathlib import Path
from random import Random

import torch
from diffusers import AutoencoderTiny

from workers.builtin import autoencoder as autoencoders
from workers.builtin import denoiser as denoisers
from workers.builtin import text
from workers.builtin.export import export
from workers.builtin.latents import LatentStore

WEIGHTS = (4.0, 2.0, 4.0)
FIRST_SCENES = 4000
AUTOENCODER_SHARE = 0.16
TEXT_SHARE = 0.03
POLISH_SHARE = 0.26


def main(arguments: list[str] | None = None) -> int:
    """The command ``python -m workers.builtin.train``; called again it goes on where it was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0, help="for all parts together")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the finished pipeline")
    parser.add_argument("--work", type=Path, required=True, help="checkpoints; keep it to go on later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    chosen.work.mkdir(parents=True, exist_ok=True)
    autoencoder = get_autoencoder(chosen.work / "autoencoder", chosen.minutes * AUTOENCODER_SHARE, chosen.seed)
    reader, pool = get_reader(chosen.work / "text.pt", chosen.minutes * TEXT_SHARE, chosen.seed)
    torch.manual_seed(chosen.seed)
    denoiser = denoisers.build()
    denoiser.add_embedding.load_state_dict(pool)
    store = LatentStore(autoencoder, Random(chosen.seed), WEIGHTS)
    share = 1.0 - AUTOENCODER_SHARE - TEXT_SHARE - POLISH_SHARE
    plan = denoisers.Plan(chosen.minutes * share, chosen.seed, chosen.work / "denoiser.pt")
    trainer = denoisers.Trainer(reader, denoiser, store, plan)
    trainer.resume()
    store.fill(FIRST_SCENES)
    finish = partial(export, chosen.out, reader, autoencoder, denoiser)
    trainer.run(finish)
    autoencoders.polish(autoencoder, chosen.minutes * POLISH_SHARE, chosen.seed + 2)
    trainer.with_average(finish)
    return 0


def get_autoencoder(folder: Path, minutes: float, seed: int) -> AutoencoderTiny:
    """The trained autoencoder: from ``folder`` if an earlier run finished it."""
    if not folder.exists():
        autoencoders.train(folder, minutes, seed)
    return AutoencoderTiny.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()


def get_reader(path: Path, minutes: float, seed: int) -> tuple[text.Reader, dict[str, torch.Tensor]]:
    """The warmed-up text encoder and its pooling: from ``path`` if an earlier run finished them."""
    torch.manual_seed(seed)
    reader = text.Reader()
    if not path.exists():
        heads = text.warm_up(reader, minutes, seed, WEIGHTS)
        text.save(reader, heads, path)
    state = torch.load(path, weights_only=True)
    reader.encoder.load_state_dict(state["encoder"])
    return reader, state["pool"]


if __name__ == "__main__":
    sys.exit(main())
