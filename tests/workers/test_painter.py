"""The painter over a pipeline that does what a test wants: odd schedulers, errors at a step, previews that fail."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub.errors import HFValidationError
from PIL import Image
from safetensors import SafetensorError

from workers.device import Device, is_out_of_memory, open_device
from workers.failures import classify
from workers.painter import BadRequest, Painter, Stopped
from workers.pipelines import HubUnreachable, Loaded, Pipelines
from workers.preview import make_preview
from workers.protocol import Answer, Generate, Picture, Preview, Step
from workers.trust import Refused

REQUEST = Generate(
    request=5,
    model="fake",
    prompt="a red circle",
    negative_prompt="",
    width=64,
    height=64,
    steps=4,
    guidance_scale=2.0,
    seed=7,
    num_images=1,
)


class FakePipeline:
    """Calls back as diffusers' pipelines do, `calls_per_step` times a step; `at_step` may raise."""

    def __init__(self, calls: int | None = None, at_step: Callable[[int], None] = lambda step: None) -> None:
        self.components: dict[str, Any] = {}
        self.scheduler = SimpleNamespace(config=SimpleNamespace())
        self.vae = SimpleNamespace(config=SimpleNamespace(scaling_factor=1.0), dtype=torch.float32, decode=self.decode)
        self.num_timesteps = 0
        self.latents = torch.zeros(1, 3, 8, 8)
        self._calls = calls
        self._at_step = at_step

    def __call__(
        self, prompt: str, generator: torch.Generator, num_inference_steps: int, callback_on_step_end: Any, **_: Any
    ) -> Any:
        self._at_step(0)
        self.num_timesteps = self._calls or num_inference_steps
        shade = int(torch.randint(256, (1,), generator=generator))
        with self.progress_bar(total=num_inference_steps) as bar:
            for index in range(self.num_timesteps):
                self._at_step(index + 1)
                assert callback_on_step_end(self, index, None, {"latents": self.latents}) == {}
                bar.update()
        return SimpleNamespace(images=[Image.new("RGB", (64, 64), (shade, 0, 0))])

    def progress_bar(self, iterable: Any = None, total: int | None = None) -> Any:
        raise AssertionError("the painter brings its own")

    def decode(self, latents: torch.Tensor, return_dict: bool) -> tuple[torch.Tensor]:
        return (latents,)


class FakePipelines(Pipelines):
    def __init__(self, pipeline: FakePipeline, device: Device) -> None:
        super().__init__({}, device)
        self._fake = pipeline

    def get(self, model: str, pixels: int = 0, economy: bool = False) -> Loaded:
        return Loaded(self._fake, 0)


def paint(
    pipeline: FakePipeline, is_stopped: Callable[[], bool] = lambda: False, preview_every: int = 2
) -> list[Answer]:
    device = Device("cpu", 10**9)
    said: list[Answer] = []
    Painter(FakePipelines(pipeline, device), device, preview_every).paint(REQUEST, said.append, is_stopped)
    return said


def steps_of(said: list[Answer]) -> list[int]:
    return [answer.step for answer in said if isinstance(answer, Step)]


@pytest.mark.parametrize("calls", [4, 5, 7, 8])
def test_the_user_is_told_the_steps_that_were_asked_for_however_often_the_scheduler_calls(calls: int) -> None:
    said = paint(FakePipeline(calls))
    assert steps_of(said) == [1, 2, 3, 4]
    assert [answer.step for answer in said if isinstance(answer, Preview)] == [2]


def test_the_pipelines_own_bar_is_put_back() -> None:
    pipeline = FakePipeline()
    paint(pipeline)
    with pytest.raises(AssertionError, match="brings its own"):
        pipeline.progress_bar()


@pytest.mark.parametrize("asked_at", [0, 1, 2, 3, 4])
def test_it_stops_where_it_is_asked_to(asked_at: int) -> None:
    asked = asked_at == 0

    def ask(step: int) -> None:
        nonlocal asked
        asked = step >= asked_at

    said: list[Answer] = []
    device = Device("cpu", 10**9)
    painter = Painter(FakePipelines(FakePipeline(at_step=ask), device), device, 0)
    with pytest.raises(Stopped):
        painter.paint(REQUEST, said.append, lambda: asked)
    assert steps_of(said) == list(range(1, asked_at))
    assert not [answer for answer in said if isinstance(answer, Picture)]


def failing(error: BaseException, step: int) -> FakePipeline:
    def fail(now: int) -> None:
        if now == step:
            raise error

    return FakePipeline(at_step=fail)


def test_an_argument_the_pipeline_refuses_is_a_bad_request_and_the_same_error_later_is_not() -> None:
    with pytest.raises(BadRequest, match="no such size"):
        paint(failing(ValueError("no such size"), 0))
    with pytest.raises(ValueError, match="a bug"):
        paint(failing(ValueError("a bug"), 3))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (RuntimeError("MPS backend out of memory"), "out_of_memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "out_of_memory"),
        (RuntimeError("CUDA error: device-side assert triggered"), "transient"),
        (OSError(5, "Input/output error"), "transient"),
        (HubUnreachable("the hub cannot be reached"), "transient"),
        (Refused("it brings code"), "poison"),
        (BadRequest("no such size"), "poison"),
        (SafetensorError("invalid header"), "poison"),
        (HFValidationError("bad id"), "poison"),
    ],
)
def test_every_error_has_its_kind(error: BaseException, kind: str) -> None:
    assert classify("m", error)[0] == kind
    assert is_out_of_memory(error) == (kind == "out_of_memory")


def test_an_error_is_told_on_one_short_line() -> None:
    _, text = classify("m", RuntimeError("a\nb\n" + "c" * 5000))
    assert text.startswith("RuntimeError: a b ccc")
    assert len(text) == 500


@pytest.mark.parametrize("error", [RuntimeError("no preview"), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_preview_that_fails_costs_the_previews_and_not_the_picture(error: Exception) -> None:
    pipeline = FakePipeline()

    def fail(latents: torch.Tensor, return_dict: bool) -> tuple[torch.Tensor]:
        raise error

    pipeline.vae.decode = fail
    said = paint(pipeline, preview_every=1)
    assert not [answer for answer in said if isinstance(answer, Preview)]
    assert [answer for answer in said if isinstance(answer, Picture)]


def test_no_preview_is_made_of_packed_latents_or_of_numbers_that_are_none() -> None:
    pipeline = FakePipeline()
    assert make_preview(pipeline, torch.zeros(1, 64, 16)) is None
    assert make_preview(pipeline, torch.full((1, 3, 8, 8), torch.nan)) is None
    assert make_preview(pipeline, torch.zeros(1, 3, 8, 8)) is not None


def test_large_latents_are_shrunk_before_they_are_decoded_and_stay_as_they_were() -> None:
    pipeline = FakePipeline()
    decoded: list[tuple[int, ...]] = []

    def decode(latents: torch.Tensor, return_dict: bool) -> tuple[torch.Tensor]:
        decoded.append(tuple(latents.shape))
        return (latents,)

    pipeline.vae.decode = decode
    latents = torch.rand(2, 3, 128, 96)
    before = latents.clone()
    assert make_preview(pipeline, latents) is not None
    assert decoded == [(1, 3, 32, 24)]
    assert torch.equal(latents, before)


def test_the_schedulers_guess_of_the_finished_picture_is_shown_where_it_keeps_one() -> None:
    pipeline = FakePipeline()
    guess = torch.ones(1, 3, 8, 8)
    noisy = torch.zeros(1, 3, 8, 8)
    plain = make_preview(pipeline, noisy)
    pipeline.scheduler = SimpleNamespace(
        config=SimpleNamespace(algorithm_type="dpmsolver++"), model_outputs=[None, guess]
    )
    assert make_preview(pipeline, noisy) == make_preview(FakePipeline(), guess) != plain
    pipeline.scheduler.config.algorithm_type = "dpmsolver"
    assert make_preview(pipeline, noisy) == plain


@pytest.mark.parametrize("name", ["cuda:99", "cuda:x", "tpu", "", "cpu:1"])
def test_a_device_that_is_not_there_says_what_may_be_asked_for(name: str) -> None:
    with pytest.raises(ValueError, match="KARGAH_DEVICE may be auto, cpu, cuda"):
        open_device(name, threads=0)
