"""One attempt on the device: from a request to its pictures, step by step, stoppable at each. Imports torch."""

import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from workers.device import Device, is_out_of_memory
from workers.pipelines import Pipelines
from workers.png import encode_png
from workers.preview import make_preview
from workers.protocol import Answer, Denoising, Done, Generate, Loaded, Picture, Preview, Step

log = logging.getLogger(__name__)  # to stderr: this is not the worker's process


class Stopped(Exception):
    """The attempt was asked to stop, and did."""


class BadRequest(Exception):
    """The pipeline does not take the request: another try would give the same answer."""


class Painter:
    """Makes the pictures of a request, one by one.

    Each picture has a generator (its seed = seed + its number) and a batch of its own, so the second picture of a
    request has the bytes of the first one of a request with that seed. Several in one batch would be faster on a
    large GPU, and differ by the last bit with the batch they happen to meet in.
    """

    def __init__(self, pipelines: Pipelines, device: Device, preview_every: int) -> None:
        self._pipelines = pipelines
        self._device = device
        self._preview_every = preview_every

    def paint(self, request: Generate, send: Callable[[Answer], None], is_stopped: Callable[[], bool]) -> Done:
        """Send every answer but the last, and return that. `is_stopped` is asked before and after each step.

        Raises `Stopped`, `BadRequest`, and whatever loading and inference raise.
        """
        if is_stopped():
            raise Stopped
        pixels = request.width * request.height
        self._device.begin_measuring()
        try:
            loaded = self._pipelines.get(request.model, pixels, request.economy)
            send(Loaded(request.request, loaded.load_ms))
            attempt = _Attempt(request, loaded.pipeline, self._device, self._preview_every, send, is_stopped)
            attempt.run()
            peak_bytes = self._device.peak_bytes()
            if peak_bytes is not None and not request.economy:
                self._pipelines.budget.measured(request.model, pixels, peak_bytes)
        finally:
            self._pipelines.done_with(request.model)
        return Done(
            request.request,
            denoise_ms=round(attempt.denoise_s * 1000),
            decode_ms=round(attempt.decode_s * 1000),
            prompt_truncated=_is_truncated(loaded.pipeline, request.prompt),
            peak_bytes=peak_bytes,
        )

    def release(self) -> None:
        """Give the device's memory back after an attempt that failed for want of it."""
        self._device.release()


class _Attempt:
    """The state of one attempt. Its methods are in the order in which the pipeline comes to them."""

    def __init__(
        self,
        request: Generate,
        pipeline: Any,
        device: Device,
        preview_every: int,
        send: Callable[[Answer], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._request = request
        self._pipeline = pipeline
        self._device = device
        self._preview_every = preview_every
        self._send = send
        self._is_stopped = is_stopped
        self._image = 0
        self._step = 0
        self._began_at = self._step_began_at = 0.0
        self.denoise_s = 0.0
        self.decode_s = 0.0

    def run(self) -> None:
        for image in range(self._request.num_images):
            self._image, self._step = image, 0
            picture = self._call_pipeline()
            self._check()
            png = encode_png(picture, self._request, self._image)
            self.decode_s += time.perf_counter() - self._step_began_at
            seed = self._request.seed + self._image
            self._send(Picture(self._request.request, self._image, seed, picture.width, picture.height, png))

    def _call_pipeline(self) -> Any:
        arguments = {
            "prompt": self._request.prompt,
            # SDXL zeroes the embedding for None and encodes "": None is what "no negative prompt" means.
            "negative_prompt": self._request.negative_prompt or None,
            "width": self._request.width,
            "height": self._request.height,
            "num_inference_steps": self._request.steps,
            "guidance_scale": self._request.guidance_scale,
            # On the CPU whatever the device is: the same seed begins with the same noise on all of them.
            "generator": torch.Generator("cpu").manual_seed(self._request.seed + self._image),
            "callback_on_step_end": self._end_step,
        }
        known = inspect.signature(self._pipeline.__call__).parameters  # Flux's has no negative_prompt in some versions
        with _told_before_denoising(self._pipeline, self._begin_denoising):
            try:
                return self._pipeline(**{name: value for name, value in arguments.items() if name in known}).images[0]
            except (TypeError, ValueError) as problem:
                if self._step:
                    raise
                raise BadRequest(str(problem)) from problem

    def _begin_denoising(self) -> None:
        self._check()
        self._send(Denoising(self._request.request, self._image))
        self._began_at = self._step_began_at = time.perf_counter()

    def _end_step(self, pipeline: Any, index: int, _timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        self._device.synchronize()
        took_s = time.perf_counter() - self._step_began_at
        self._check()
        # A scheduler of second order calls twice a step; the user asked for so many steps and is told so many.
        calls = getattr(pipeline, "num_timesteps", None) or self._request.steps
        step = (index + 1) * self._request.steps // calls
        if step > self._step:
            self._step = step
            self._send(Step(self._request.request, self._image, step, took_s * 1000))
            self._show(tensors["latents"])
            self._step_began_at = time.perf_counter()
        if index + 1 == calls:
            self.denoise_s += time.perf_counter() - self._began_at
        return {}

    def _show(self, latents: torch.Tensor) -> None:
        if not self._preview_every or self._step % self._preview_every or self._step == self._request.steps:
            return
        try:
            picture = make_preview(self._pipeline, latents)
        except Exception as problem:  # a preview is never worth the picture
            log.warning("no more previews of this attempt: %s", problem)
            self._preview_every = 0
            if is_out_of_memory(problem):
                self._device.release()
            return
        if picture is not None:
            self._send(Preview(self._request.request, self._image, self._step, picture))

    def _check(self) -> None:
        if self._is_stopped():
            raise Stopped


@contextmanager
def _told_before_denoising(pipeline: Any, tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` when the prompt is encoded and the steps begin.

    Pipelines have no hook for it, but all of them open their progress bar at that moment, by a method meant to be
    configured; an attribute of the instance hides it for one call.
    """

    def progress_bar(iterable: Iterable[Any] | None = None, total: int | None = None) -> Any:
        tell()
        return iterable if iterable is not None else nullcontext(_SilentBar())

    pipeline.progress_bar = progress_bar
    try:
        yield
    finally:
        del pipeline.progress_bar


class _SilentBar:
    def update(self, steps: int = 1) -> None:
        """Nothing to draw: the steps are reported by the callback."""


def _is_truncated(pipeline: Any, prompt: str) -> bool:
    """Whether no text encoder of the pipeline got the whole prompt."""
    tokenizers = [
        part for name, part in pipeline.components.items() if name.startswith("tokenizer") and part is not None
    ]
    return bool(tokenizers) and all(
        len(tokenizer(prompt, truncation=False).input_ids) > tokenizer.model_max_length for tokenizer in tokenizers
    )
