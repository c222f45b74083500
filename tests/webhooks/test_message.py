from typing import Any

import msgspec
import pytest

from orchestrator.events import Event
from orchestrator.generation import (
    MAX_METADATA_BYTES,
    WEBHOOK_EVENTS,
    Generation,
    GenerationProgress,
    GenerationResult,
    Image,
)
from orchestrator.settings import Settings
from webhooks.message import Composer, public_url

AT = 1_796_000_000_123
GENERATION = Generation(
    prompt="a red circle",
    model="m",
    width=64,
    height=64,
    steps=20,
    guidance_scale=2.0,
    seed=7,
    metadata={"order": "é1"},
)
ALWAYS = {
    "id", "run", "attempt", "seq", "status", "progress", "phase", "step", "steps", "milestone", "images", "error",
    "metadata",
}  # fmt: skip


def compose(type_: str, last: GenerationProgress | None = None, **fields: Any) -> dict[str, Any]:
    event = Event(id="5-0", type=type_, at=AT, job="job1", run=2, attempt=1, seq=9, fields=fields)
    settings = Settings(public_url="https://pictures.example/base/", keep_completed_s=60)
    message = Composer(settings).compose(event, GENERATION, last)
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(message))
    assert decoded["type"] == f"generation.{WEBHOOK_EVENTS[type_]}"
    assert decoded["timestamp"] == "2026-11-30T00:53:20.123Z"
    assert set(decoded["data"]) == ALWAYS
    common = {"id": "job1", "run": 2, "attempt": 1, "seq": 9, "metadata": {"order": "é1"}}
    assert decoded["data"].items() >= common.items()
    content: dict[str, Any] = decoded["data"]
    return content


def test_started() -> None:
    content = compose("active", worker="w", prev="waiting")
    assert (content["status"], content["progress"], content["images"]) == ("active", None, [])


def test_progress() -> None:
    content = compose(
        "progress", progress={"phase": "denoising", "step": 5, "steps": 20, "fraction": 0.25, "eta_ms": 900}
    )
    assert content.items() >= {"status": "active", "progress": 0.25, "phase": "denoising", "step": 5}.items()
    assert content["steps"] == 20


def test_a_milestone_and_the_url_of_a_preview() -> None:
    assert compose("milestone", name="decoded", data=None)["milestone"] == {"name": "decoded", "url": None}
    preview = compose("milestone", name="preview_ready", data={"number": 2, "step": 10, "bytes": 900})
    assert preview["milestone"]["url"] == "https://pictures.example/base/v1/generations/job1/preview"


def test_completed_names_the_pictures_and_until_when_they_are_kept() -> None:
    images = tuple(Image(f"job1/1-t/{i}.png", 64, 64, 7 + i, 4000) for i in range(2))
    result = msgspec.to_builtins(GenerationResult(images=images, denoise_ms=10))
    content = compose("completed", result=result, started_at=AT - 1000)
    assert content.items() >= {"status": "completed", "progress": 1.0, "step": 20, "steps": 20, "error": None}.items()
    assert content["images"][1] == {
        "index": 1,
        "url": "https://pictures.example/base/v1/generations/job1/images/1",
        "width": 64,
        "height": 64,
        "seed": 8,
        "bytes": 4000,
        "content_type": "image/png",
        "expires_at": AT + 60_000,
    }
    assert "job1/1-t" not in str(content)


def test_completed_without_its_result_has_no_pictures() -> None:
    assert compose("completed", result_bytes=3000, started_at=AT)["images"] == []


def test_failed_carries_the_error_and_the_last_progress() -> None:
    error = {"kind": "timeout", "message": "x" * 5000, "details": {"inner": "not told"}}
    last = GenerationProgress(phase="decoding", step=20, steps=20, fraction=0.9)
    content = compose("failed", last, reason="timeout", error=error)
    assert content.items() >= {"status": "failed", "progress": 0.9, "phase": "decoding", "step": 20}.items()
    assert content["error"] == {"kind": "timeout", "message": "x" * 2000}
    assert compose("failed", reason="timeout", error=error)["progress"] is None


def test_canceled_says_where_it_stopped() -> None:
    content = compose(
        "canceled", cancel={"by": "", "reason": ""}, details={"phase": "denoising", "step": 3, "steps": 20}
    )
    assert content.items() >= {"status": "canceled", "phase": "denoising", "step": 3, "steps": 20}.items()
    assert compose("canceled", cancel={}, details={})["step"] is None
    assert compose("canceled", cancel={})["step"] is None


def test_a_body_stays_under_20_kb() -> None:
    images = tuple(Image("p", 2048, 2048, 2**53 - 1, 10**9) for _ in range(4))
    metadata = {"a": "é" * ((MAX_METADATA_BYTES - 8) // 2)}
    generation = msgspec.structs.replace(GENERATION, metadata=metadata)
    fields = {"result": msgspec.to_builtins(GenerationResult(images=images)), "started_at": 1}
    event = Event(id="5-0", type="completed", at=AT, job="j" * 128, run=1, attempt=1, seq=2000, fields=fields)
    assert (
        len(msgspec.json.encode(Composer(Settings(public_url="https://x.example")).compose(event, generation))) < 20_000
    )


@pytest.mark.parametrize(
    ("type_", "fields"),
    [("added", {}), ("progress", {}), ("progress", {"progress": 5}), ("failed", {}), ("failed", {"error": "no"})],
)
def test_what_cannot_be_told_is_an_error(type_: str, fields: dict[str, Any]) -> None:
    event = Event(id="5-0", type=type_, at=AT, job="job1", fields=fields)
    with pytest.raises((KeyError, msgspec.ValidationError)):
        Composer(Settings()).compose(event, GENERATION)


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (Settings(public_url="https://x.example/k/"), "https://x.example/k"),
        (Settings(host="127.0.0.1", port=8001), "http://127.0.0.1:8001"),
        (Settings(host="0.0.0.0"), "http://127.0.0.1:8000"),
        (Settings(host="::"), "http://[::1]:8000"),
    ],
)
def test_urls_begin_with_the_public_url_or_where_the_api_listens(settings: Settings, url: str) -> None:
    assert public_url(settings) == url
