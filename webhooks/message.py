"""From an event of a generation to the body a receiver gets."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from orchestrator.events import Event
from orchestrator.generation import WEBHOOK_EVENTS, Generation, GenerationProgress, GenerationResult
from orchestrator.settings import Settings

MAX_ERROR_CHARS = 2000


class MessageImage(msgspec.Struct, frozen=True, kw_only=True):
    """A finished picture: where it is, and until when."""

    index: int
    url: str
    width: int
    height: int
    seed: int
    bytes: int
    content_type: str
    expires_at: int


class MessageError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a generation failed."""

    kind: str
    message: str


class MessageMilestone(msgspec.Struct, frozen=True, kw_only=True):
    """A milestone; `url` is the preview picture's, which is overwritten by the next one and short-lived."""

    name: str
    url: str | None = None


class MessageContent(msgspec.Struct, frozen=True, kw_only=True):
    """The `data` of a body. Every field is always there; what does not apply is null or empty.

    progress: fraction of the whole in [0, 1]. seq: grows by one with each event of the job, over all runs.
    """

    id: str
    run: int
    attempt: int
    seq: int
    status: str
    progress: float | None = None
    phase: str | None = None
    step: int | None = None
    steps: int | None = None
    milestone: MessageMilestone | None = None
    images: tuple[MessageImage, ...] = ()
    error: MessageError | None = None
    metadata: dict[str, Any] = {}


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A body as Standard Webhooks has it."""

    type: str
    timestamp: str
    data: MessageContent


class Composer:
    """Writes bodies. Ids and URLs go in, pictures never: a body is under 20 kB."""

    def __init__(self, settings: Settings) -> None:
        self._base = public_url(settings)
        self._keep_ms = settings.keep_completed_s * 1000

    def compose(self, event: Event, generation: Generation, last: GenerationProgress | None = None) -> Message:
        """The body for `event`; `last` is the job's last progress, for a failed one. Raises `KeyError` for an event
        receivers are not told of, `msgspec.ValidationError` for one that is malformed."""
        word = WEBHOOK_EVENTS[event.type]
        content = MessageContent(
            id=event.job or "",
            run=event.run,
            attempt=event.attempt,
            seq=event.seq,
            status=word if event.type == word and event.type not in ("progress", "milestone") else "active",
            metadata=generation.metadata,
            **self._details(event, generation, last),
        )
        moment = datetime.fromtimestamp(event.at / 1000, UTC)
        stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return Message(type=f"generation.{word}", timestamp=stamp, data=content)

    def _details(self, event: Event, generation: Generation, last: GenerationProgress | None) -> dict[str, Any]:
        match event.type:
            case "progress":
                return _progress(msgspec.convert(event.fields["progress"], GenerationProgress))
            case "milestone":
                return {"milestone": self._milestone(event)}
            case "completed":
                done = {"progress": 1.0, "step": generation.steps, "steps": generation.steps}
                return {**done, "images": self._images(event)}
            case "failed":
                return {**_progress(last), "error": _error(event)}
            case "canceled":
                return _stopped(msgspec.convert(event.fields.get("details") or {}, dict[str, Any]))
            case _:
                return {}

    def _milestone(self, event: Event) -> MessageMilestone:
        name = str(event.fields["name"])
        url = f"{self._url(event)}/preview" if name == "preview_ready" else None
        return MessageMilestone(name=name, url=url)

    def _images(self, event: Event) -> tuple[MessageImage, ...]:
        """Empty if the result was too large for its event; the generation's own URL then has them."""
        if "result" not in event.fields:
            return ()
        result = msgspec.convert(event.fields["result"], GenerationResult)
        return tuple(
            MessageImage(
                index=index,
                url=f"{self._url(event)}/images/{index}",
                width=image.width,
                height=image.height,
                seed=image.seed,
                bytes=image.bytes,
                content_type=image.content_type,
                expires_at=event.at + self._keep_ms,
            )
            for index, image in enumerate(result.images)
        )

    def _url(self, event: Event) -> str:
        return f"{self._base}/v1/generations/{event.job}"


def public_url(settings: Settings) -> str:
    """How clients reach the api, without a slash at the end."""
    if settings.public_url:
        return settings.public_url.rstrip("/")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _progress(progress: GenerationProgress | None) -> dict[str, Any]:
    if progress is None:
        return {}
    return {
        "progress": progress.fraction,
        "phase": progress.phase,
        "step": progress.step,
        "steps": progress.steps,
    }


def _stopped(details: dict[str, Any]) -> dict[str, Any]:
    return {name: details.get(name) for name in ("phase", "step", "steps")}


def _error(event: Event) -> MessageError:
    error = msgspec.convert(event.fields["error"], dict[str, Any])
    return MessageError(kind=str(error.get("kind")), message=str(error.get("message"))[:MAX_ERROR_CHARS])
