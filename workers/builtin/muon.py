"""An optimiser that orthogonalises the steps of matrices and convolutions, and leaves the rest to AdamW."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

STEPS = ((3.4445, -4.7750, 2.0315),) * 5
"""Newton-Schulz coefficients. Source: Keller Jordan, "Muon", https://kellerjordan.github.io/posts/muon/"""


class Muon:
    """Muon for every matrix that is neither an embedding nor at an end of the network, AdamW for the others.

    ``scale(x)`` multiplies both learning rates; ``state_dict`` and ``load_state_dict`` make training resumable.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], ends: tuple[str, ...], lr: float, adam_lr: float):
        self.inner: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for name, parameter in named:
            is_inner = parameter.ndim >= 2 and not any(end in name for end in ends)
            (self.inner if is_inner else rest).append(parameter)
        self.lr = lr
        self.adam_lr = adam_lr
        self.factor = 1.0
        self.momentum = [torch.zeros_like(p) for p in self.inner]
        self.adam = torch.optim.AdamW(rest, lr=adam_lr, betas=(0.9, 0.99), weight_decay=0.0)

    def scale(self, factor: float) -> None:
        """Sets both learning rates to ``factor`` times what they were at first."""
        self.factor = factor
        for group in self.adam.param_groups:
            group["lr"] = self.adam_lr * factor

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.adam.zero_grad()
        for parameter in self.inner:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step; equal shapes are orthogonalised together."""
        self.adam.step()
        by_shape: dict[tuple[int, int], list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
        for parameter, momentum in zip(self.inner, self.momentum, strict=True):
            if parameter.grad is None:
                continue
            momentum.lerp_(parameter.grad, 0.05)
            update = parameter.grad.lerp(momentum, 0.95).flatten(1)
            by_shape[update.shape[0], update.shape[1]].append((parameter, update))
        for (rows, columns), entries in by_shape.items():
            orthogonal = orthogonalise(torch.stack([update for _, update in entries]))
            rate = self.lr * self.factor * max(1.0, rows / columns) ** 0.5
            for (parameter, _), update in zip(entries, orthogonal, strict=True):
                parameter.add_(update.view_as(parameter), alpha=-rate)

    def state_dict(self) -> dict[str, Any]:
        """All that a later ``load_state_dict`` needs to go on as if nothing had happened."""
        return {"momentum": self.momentum, "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over the momenta of an earlier run on the same network."""
        for mine, theirs in zip(self.momentum, state["momentum"], strict=True):
            mine.copy_(theirs)
        self.adam.load_state_dict(state["adam"])


def orthogonalise(matrices: Tensor) -> Tensor:
    """The nearest half-orthogonal matrix of each, roughly: float32 (n, rows, columns), singular values near 1.

    Every iterate is a polynomial of the Gram matrix G = X Xᵀ times X, and such polynomials commute, so it is enough
    to iterate on the small square G and to multiply X once at the end: P = a + bG + cG², G ← PGP, Q ← PQ.
    """
    wide = matrices.mT if matrices.shape[1] > matrices.shape[2] else matrices
    wide = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    gram = wide @ wide.mT
    product = None
    for a, b, c in STEPS:
        factor = b * gram + c * (gram @ gram)
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = factor if product is None else factor @ product
        gram = factor @ gram @ factor
    assert product is not None
    orthogonal: Tensor = product @ wide
    return orthogonal.mT if matrices.shape[1] > matrices.shape[2] else orthogonal


class Average:
    """A moving average of a network's parameters, which draws better pictures than the last step."""

    def __init__(self, module: nn.Module, decay: float):
        self.decay = decay
        self.steps = 0
        self.values = {name: value.detach().clone() for name, value in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Moves the average a little towards the parameters now."""
        self.steps += 1
        decay = min(self.decay, self.steps / (self.steps + 10))
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                self.values[name].lerp_(value, 1.0 - decay)
