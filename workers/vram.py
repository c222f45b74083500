"""Which models stay on a device and whether a job fits: the memory policy, in plain numbers and without torch."""

from collections import OrderedDict

import msgspec

# A first guess for a model that was never measured: what one pixel of the picture costs besides the weights, at two
# bytes a number. Stable Diffusion 1.5 in fp16 at 512 × 512 peaks about 0.8 GB above its weights; 0.8 GB / 262,144 px
# = 3.1 kB, nearly all of it in the VAE's decoder.
BYTES_PER_PIXEL = 3_200
MARGIN = 0.05  # of the budget stays free: allocators fragment


class Plan(msgspec.Struct, frozen=True):
    """What must happen before a job may start: models to drop, least recently used first; whether to save memory."""

    evict: tuple[str, ...] = ()
    economy: bool = False


class MemoryBudget:
    """The models on one device.

        peak(job) = weights(model) + pixels(job) · bytes per pixel(model)
        a job fits if  Σ weights of the others kept + peak(job) ≤ budget · (1 − margin)

    The bytes per pixel are a guess until a job of the model was measured, then the largest seen. A job that would not
    fit even alone is not refused, for the device has the last word: on a guess it starts as usual, since saving memory
    changes the picture's last bits; on a measurement it starts in economy.
    """

    def __init__(self, budget_bytes: int, bytes_per_number: int = 2) -> None:
        self.budget_bytes = budget_bytes
        self._guess = BYTES_PER_PIXEL * bytes_per_number / 2
        self._weights: OrderedDict[str, int] = OrderedDict()  # least recently used first
        self._per_pixel: dict[str, float] = {}

    @property
    def kept(self) -> tuple[str, ...]:
        """The models on the device, least recently used first."""
        return tuple(self._weights)

    def peak_bytes(self, model: str, weights_bytes: int, pixels: int) -> int:
        """What a job of `model` needs in all."""
        return weights_bytes + round(pixels * self._per_pixel.get(model, self._guess))

    def plan(self, model: str, weights_bytes: int, pixels: int) -> Plan:
        """What must go before `model` may paint so many pixels; `weights_bytes` counts if it is not loaded yet."""
        weights_bytes = self._weights.get(model, weights_bytes)
        room = round(self.budget_bytes * (1 - MARGIN)) - self.peak_bytes(model, weights_bytes, pixels)
        others = {name: size for name, size in self._weights.items() if name != model}
        held = sum(others.values())
        evict = []
        for name, size in others.items():
            if held <= room:
                break
            evict.append(name)
            held -= size
        return Plan(tuple(evict), economy=held > room and model in self._per_pixel)

    def loaded(self, model: str, weights_bytes: int) -> None:
        """`model` is on the device now, and so much is held by it."""
        self._weights[model] = weights_bytes

    def used(self, model: str) -> None:
        """`model` is needed now; it is the last to go."""
        self._weights.move_to_end(model)

    def dropped(self, model: str) -> None:
        """`model` is gone from the device."""
        self._weights.pop(model, None)

    def measured(self, model: str, pixels: int, peak_bytes: int) -> None:
        """A job of `model` was seen to peak at so much, everything kept included."""
        activations = max(0, peak_bytes - sum(self._weights.values()))
        self._per_pixel[model] = max(self._per_pixel.get(model, 0.0), activations / pixels)
