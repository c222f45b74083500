"""How far an attempt is and how long it still takes: pure arithmetic over the answers of the inference process."""

import msgspec

from orchestrator.generation import GenerationProgress, Phase

# The shares of the whole bar. Denoising and decoding are divided evenly among the pictures:
#     0 ── loading ── .05 ── (denoising .85 + decoding .08) ── .98 ── storing ── 1
LOADING, DENOISING, DECODING = 0.05, 0.85, 0.08
SMOOTHING = 0.3  # weight of the newest step in the mean: a slow first step is forgotten in about eight


class Pace(msgspec.Struct):
    """What a step and a decoding took last time, in milliseconds; None while unknown."""

    step_ms: float | None = None
    decode_ms: float | None = None

    def step_took(self, ms: float) -> None:
        """Take a step into the mean."""
        self.step_ms = ms if self.step_ms is None else self.step_ms + SMOOTHING * (ms - self.step_ms)


class Meter:
    """Follows one attempt. Steps count over all its pictures, so nothing here ever goes back."""

    def __init__(self, steps: int, num_images: int, pace: Pace) -> None:
        self.phase: Phase = "loading"
        self.step = 0
        self.steps = steps * num_images
        self._steps_each = steps
        self._num_images = num_images
        self._decoded = 0
        self._pace = pace

    @property
    def all_denoised(self) -> bool:
        """Whether the last step of the last picture is done."""
        return self.step == self.steps

    def loaded(self) -> None:
        """The model is there; the prompt is being encoded."""
        self.phase = "encoding"

    def denoising(self) -> None:
        """A picture begins."""
        self.phase = "denoising"

    def stepped(self, image: int, step: int, ms: float) -> None:
        """Step `step` of picture `image` took `ms`."""
        self._pace.step_took(ms)
        self.step = image * self._steps_each + step
        self.phase = "decoding" if step == self._steps_each else "denoising"

    def decoded(self) -> None:
        """A picture is finished."""
        self._decoded += 1

    def storing(self, decode_ms: float) -> None:
        """All pictures are here; decoding them took so long in all."""
        self.phase = "storing"
        self._pace.decode_ms = decode_ms / self._num_images

    def read(self) -> GenerationProgress:
        """The progress to report now."""
        return GenerationProgress(
            phase=self.phase,
            step=self.step,
            steps=self.steps,
            fraction=round(self._fraction(), 4),
            ms_per_step=None if self._pace.step_ms is None else round(self._pace.step_ms, 1),
            eta_ms=self._eta_ms(),
        )

    def _fraction(self) -> float:
        if self.phase == "loading":
            return 0.0
        return LOADING + DENOISING * self.step / self.steps + DECODING * self._decoded / self._num_images

    def _eta_ms(self) -> int | None:
        """None until a step was timed, and while the model loads, which nobody can foretell."""
        if self._pace.step_ms is None or self.phase == "loading":
            return None
        # An unknown decoding is taken for two steps: so it is, roughly, from the smallest to the largest models.
        decode_ms = 2 * self._pace.step_ms if self._pace.decode_ms is None else self._pace.decode_ms
        return round((self.steps - self.step) * self._pace.step_ms + (self._num_images - self._decoded) * decode_ms)
