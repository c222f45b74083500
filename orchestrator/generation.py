"""The payload of a generation: what is asked, what comes back, and what its progress says."""

import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from orchestrator.errors import InvalidOption

JOB_NAME = "generation"
MAX_SEED = 2**53 - 1  # exact in JSON for every client
MAX_METADATA_BYTES = 2048

WebhookEvent = Literal["started", "progress", "milestone", "completed", "failed", "canceled"]

WEBHOOK_EVENTS: Mapping[str, WebhookEvent] = {
    "active": "started",
    "progress": "progress",
    "milestone": "milestone",
    "completed": "completed",
    "failed": "failed",
    "canceled": "canceled",
}
"""The queue's event types that webhooks tell, and what they are called there."""

Phase = Literal["loading", "encoding", "denoising", "decoding", "storing"]
Milestone = Literal["model_loaded", "preview_ready", "denoised", "decoded", "stored"]


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/generations`; field names are diffusers' words.

    Left out, `model` is the service's first one and `width`, `height`, `steps`, `guidance_scale` are that model's own.
    """

    prompt: Annotated[str, Meta(min_length=1, max_length=2000)]
    negative_prompt: Annotated[str, Meta(max_length=2000)] = ""
    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    width: Annotated[int, Meta(ge=64, le=2048, multiple_of=8)] | None = None
    height: Annotated[int, Meta(ge=64, le=2048, multiple_of=8)] | None = None
    steps: Annotated[int, Meta(ge=1, le=150)] | None = None
    guidance_scale: Annotated[float, Meta(ge=0, le=30)] | None = None
    seed: Annotated[int, Meta(ge=0, le=MAX_SEED)] | None = None
    num_images: Annotated[int, Meta(ge=1, le=4)] = 1
    priority: Annotated[int, Meta(ge=1, le=2**21 - 1)] | None = None
    webhook_url: Annotated[str, Meta(min_length=1, max_length=2000)] | None = None
    webhook_events: Annotated[tuple[WebhookEvent, ...], Meta(max_length=6)] | None = None
    metadata: dict[str, Any] = {}


class Generation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job's data: the request with every choice made, so that running it again gives the same picture."""

    prompt: str
    negative_prompt: str = ""
    model: str
    width: int
    height: int
    steps: int
    guidance_scale: float
    seed: int
    num_images: int = 1
    webhook_url: str | None = None
    webhook_events: tuple[WebhookEvent, ...] = ()
    metadata: dict[str, Any] = {}


class Image(msgspec.Struct, frozen=True):
    """One finished picture. `path` is its key in the storage; picture i of a job has seed `seed + i`."""

    path: str
    width: int
    height: int
    seed: int
    bytes: int
    content_type: str = "image/png"


class GenerationResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a completed generation. Durations are milliseconds."""

    images: tuple[Image, ...]
    load_ms: int = 0
    denoise_ms: int = 0
    decode_ms: int = 0
    prompt_truncated: bool = False


class GenerationProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a progress event carries. `fraction` of the whole in [0, 1]; `eta_ms` until the end, when known."""

    phase: Phase
    step: int = 0
    steps: int = 0
    fraction: float = 0.0
    ms_per_step: float | None = None
    eta_ms: int | None = None


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """What the service knows of a model before anything is loaded; absent numbers are diffusers' own defaults."""

    id: str
    width: int = 512
    height: int = 512
    steps: int = 30
    guidance_scale: float = 7.5
    max_prompt_tokens: int | None = None
    peak_bytes: int | None = None
    prompts: dict[str, tuple[str, ...]] = {}


DEFAULT_WEBHOOK_EVENTS: tuple[WebhookEvent, ...] = ("completed", "failed", "canceled")


def complete(request: GenerationRequest, card: ModelCard) -> Generation:
    """Make every open choice. Raises `InvalidOption` for oversized metadata or events without a URL."""
    if len(msgspec.json.encode(request.metadata)) > MAX_METADATA_BYTES:
        raise InvalidOption("metadata", f"must be at most {MAX_METADATA_BYTES} bytes of JSON")
    if request.webhook_events is not None and request.webhook_url is None:
        raise InvalidOption("webhook_events", "needs a webhook_url")
    events = request.webhook_events or DEFAULT_WEBHOOK_EVENTS
    return Generation(
        prompt=request.prompt,
        negative_prompt=request.negative_prompt,
        model=card.id,
        width=request.width or card.width,
        height=request.height or card.height,
        steps=request.steps or card.steps,
        guidance_scale=card.guidance_scale if request.guidance_scale is None else request.guidance_scale,
        seed=secrets.randbelow(2**32) if request.seed is None else request.seed,
        num_images=request.num_images,
        webhook_url=request.webhook_url,
        webhook_events=events if request.webhook_url else (),
        metadata=request.metadata,
    )
