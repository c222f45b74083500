"""Trains the denoiser and the text encoder together on latents and captions."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from diffusers import DPMSolverMultistepScheduler, UNet2DConditionModel
from torch import Tensor, nn

from workers.builtin.captions import LANGUAGES, caption
from workers.builtin.latents import LatentStore, emphasis
from workers.builtin.muon import Average, Muon
from workers.builtin.progress import Progress
from workers.builtin.scenes import Scene
from workers.builtin.text import HIDDEN, POOL_HEADS, Reader

BATCH = 32
NEW_EACH_STEP = 6
HIGH_NOISE = 700
HIGH_SHARES = (0.45, 0.2)
OUTLINES_FROM = 0.12
"""Placement is learned at high noise and comes first; from this share of the time on outlines matter more."""
UNCAPTIONED = 0.1
DECAY_FROM = 0.4
CHECKPOINT_S = 120.0
EXPORT_S = 900.0


@dataclass(frozen=True)
class Plan:
    """How long to train and where to keep what is needed to go on."""

    minutes: float
    seed: int
    checkpoint: Path


def build() -> UNet2DConditionModel:
    """An untrained denoiser: 32, 64 and 128 channels at 16, 8 and 4 cells, attention to the text from 8 on."""
    return UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(32, 64, 128),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=HIDDEN,
        attention_head_dim=4,
        norm_num_groups=16,
        resnet_time_scale_shift="scale_shift",
        addition_embed_type="text",
        addition_embed_type_num_heads=POOL_HEADS,
    )


def scheduler() -> DPMSolverMultistepScheduler:
    """The stock scheduler the model is trained for and shipped with."""
    return DPMSolverMultistepScheduler(
        num_train_timesteps=1000,
        beta_schedule="squaredcos_cap_v2",
        prediction_type="v_prediction",
        timestep_spacing="trailing",
        steps_offset=1,
    )


class Trainer:
    """One resumable run: batches from the store, a step, the average, a checkpoint now and then."""

    def __init__(self, reader: Reader, denoiser: UNet2DConditionModel, store: LatentStore, plan: Plan):
        self.reader = reader
        self.denoiser = denoiser
        self.store = store
        self.plan = plan
        self.random = Random(plan.seed + 1)
        torch.manual_seed(plan.seed + 1)
        self.modules = nn.ModuleDict({"denoiser": denoiser, "text": reader.encoder})
        ends = ("conv_in", "conv_out", "time_embedding", "add_embedding", "embedding")
        self.optimisers = (
            Muon(denoiser.named_parameters(), ends, 0.01, 1e-3),
            Muon(reader.encoder.named_parameters(), ends, 0.002, 3e-4),
        )
        self.average = Average(self.modules, 0.998)
        self.kept = scheduler().alphas_cumprod
        self.step = 0
        self.spent_s = 0.0
        self.outlines = False

    def run(self, export: Callable[[], None]) -> None:
        """Trains until the time is over; ``export`` is called with the average in place, now and at the end."""
        progress = Progress("denoiser", self.plan.minutes, self.spent_s)
        saved_s, exported_s = self.spent_s, self.spent_s
        recent = 0.0
        while progress.fraction < 1.0:
            factor = min(1.0, (self.step + 1) / 100, (1.0 - progress.fraction) / (1.0 - DECAY_FROM) + 0.005)
            self.outlines = progress.fraction > OUTLINES_FROM
            loss = self.learn(factor)
            recent = loss if recent == 0.0 else 0.99 * recent + 0.01 * loss
            progress.show(self.step, f"loss {recent:.4f}")
            self.spent_s = progress.spent_s
            if self.spent_s - saved_s > CHECKPOINT_S:
                self.save()
                saved_s = self.spent_s
            if self.spent_s - exported_s > EXPORT_S:
                self.with_average(export)
                exported_s = self.spent_s
        self.save()
        self.with_average(export)

    def learn(self, factor: float) -> float:
        """One step at ``factor`` times the full learning rate; returns the loss."""
        self.store.add(NEW_EACH_STEP)
        scenes, latents = self.store.take(BATCH)
        states = self.reader.states(self.reader.ids([self._caption(scene) for scene in scenes]))
        times = self._times(len(scenes))
        kept = self.kept[times].view(-1, 1, 1, 1)
        noise = torch.randn_like(latents)
        noisy = kept.sqrt() * latents + (1.0 - kept).sqrt() * noise
        velocity = kept.sqrt() * noise - (1.0 - kept).sqrt() * latents
        guess = self.denoiser(noisy, times, states, return_dict=False)[0]
        weight = emphasis(scenes) * (5.0 * (1.0 - kept)).clamp(max=1.0)
        loss = (weight * (guess - velocity).square()).mean()
        for optimiser in self.optimisers:
            optimiser.scale(factor)
            optimiser.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.modules.parameters(), 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
        self.average.update(self.modules)
        self.step += 1
        return float(loss.detach())

    def save(self) -> None:
        """Writes the checkpoint beside its place and moves it there, so that it is always whole."""
        state = {
            "modules": self.modules.state_dict(),
            "average": self.average.values,
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "step": self.step,
            "spent_s": self.spent_s,
        }
        unfinished = self.plan.checkpoint.with_suffix(".unfinished")
        torch.save(state, unfinished)
        unfinished.replace(self.plan.checkpoint)

    def resume(self) -> None:
        """Goes on from the checkpoint if there is one; the pictures that follow are new ones."""
        if not self.plan.checkpoint.exists():
            return
        state = torch.load(self.plan.checkpoint, weights_only=True)
        self.modules.load_state_dict(state["modules"])
        self.average.values = state["average"]
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.step = self.average.steps = state["step"]
        self.spent_s = state["spent_s"]
        self.random.seed(self.plan.seed + self.step)
        torch.manual_seed(self.plan.seed + self.step)

    def with_average(self, action: Callable[[], None]) -> None:
        """Does something with the averaged parameters in place of the current ones."""
        current = {name: value.clone() for name, value in self.modules.state_dict().items()}
        self.modules.load_state_dict(self.average.values)
        action()
        self.modules.load_state_dict(current)

    def _caption(self, scene: Scene) -> str:
        if self.random.random() < UNCAPTIONED:
            return ""
        return caption(scene, self.random.choice(LANGUAGES), self.random)

    def _times(self, count: int) -> Tensor:
        return torch.tensor([self._time() for _ in range(count)])

    def _time(self) -> int:
        if self.random.random() < HIGH_SHARES[self.outlines]:
            return self.random.randrange(HIGH_NOISE, 1000)
        if self.outlines:
            return int(self.random.betavariate(1.5, 1.5) * 1000)
        return self.random.randrange(1000)
