"""A generation as clients see it: made from a job and, where it is at hand, the job's history."""

from collections.abc import Iterable
from typing import Any

import msgspec

from orchestrator.errors import JobNotFound
from orchestrator.events import Event
from orchestrator.generation import JOB_NAME, Generation, GenerationProgress, GenerationResult
from orchestrator.job import CancelRequest, Job, JobError, JobState


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, with every choice made."""

    prompt: str
    negative_prompt: str
    model: str
    width: int
    height: int
    steps: int
    guidance_scale: float
    seed: int
    num_images: int


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The newest preview picture of a generation under way."""

    number: int
    step: int | None
    url: str


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A finished picture."""

    index: int
    url: str
    width: int
    height: int
    seed: int
    bytes: int
    content_type: str


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time went, in milliseconds."""

    load_ms: int
    denoise_ms: int
    decode_ms: int


class Urls(msgspec.Struct, frozen=True, kw_only=True):
    """Where to go from here."""

    self: str
    events: str
    cancel: str
    retry: str


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A generation. Instants are ms since the epoch; URLs are relative to the service's root."""

    id: str
    status: JobState
    run: int
    attempt: int
    attempts: int
    priority: int
    input: Input
    progress: GenerationProgress | None
    preview: Preview | None
    images: list[Picture]
    error: JobError | None
    reason: str | None
    cancel: CancelRequest | None
    canceling: bool
    timings: Timings | None
    metadata: dict[str, Any]
    created_at: int
    due_at: int | None
    started_at: int | None
    finished_at: int | None
    expires_at: int | None
    urls: Urls


def url_of(job_id: str) -> str:
    """Where a generation is found."""
    return f"/v1/generations/{job_id}"


def resource_of(job: Job) -> Resource:
    """The job as a generation. Raises `JobNotFound` for a job of the queue that is something else."""
    generation = generation_of(job)
    result = job.result_as(GenerationResult)
    is_active = job.state is JobState.ACTIVE
    url = url_of(job.id)
    return Resource(
        id=job.id,
        status=job.state,
        run=job.run,
        attempt=job.attempts_started,
        attempts=job.header.attempts,
        priority=job.priority,
        input=msgspec.convert(generation, Input, from_attributes=True),
        progress=_progress_of(job) if is_active or job.state.is_finished else None,
        preview=_preview(job.id, job.preview) if is_active else None,
        images=[] if result is None else pictures_of(job.id, result),
        error=job.error,
        reason=job.reason,
        cancel=job.cancel,
        canceling=is_active and job.cancel is not None,
        timings=None if result is None else msgspec.convert(result, Timings, from_attributes=True),
        metadata=generation.metadata,
        created_at=job.created_at,
        due_at=job.due_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        expires_at=job.expires_at,
        urls=Urls(self=url, events=f"{url}/events", cancel=f"{url}/cancel", retry=f"{url}/retry"),
    )


def resources_of(jobs: Iterable[Job]) -> list[Resource]:
    """Those of the jobs that are generations: anybody with access to Redis may add others to the queue."""
    found = []
    for job in jobs:
        try:
            found.append(resource_of(job))
        except JobNotFound:
            continue
    return found


def generation_of(job: Job) -> Generation:
    """The job's data. Raises `JobNotFound` if they are no generation's."""
    try:
        if job.name == JOB_NAME:
            return job.data_as(Generation)
    except msgspec.DecodeError:
        pass
    raise JobNotFound(f"job {job.id} is not a generation")


def pictures_of(job_id: str, result: GenerationResult) -> list[Picture]:
    """The pictures of a result, by where clients find them; the paths in the storage are nobody's business."""
    return [
        Picture(
            index=index,
            url=f"{url_of(job_id)}/images/{index}",
            width=image.width,
            height=image.height,
            seed=image.seed,
            bytes=image.bytes,
            content_type=image.content_type,
        )
        for index, image in enumerate(result.images)
    ]


def pictures_in(event: Event) -> list[Picture] | None:
    """The pictures that a `completed` event tells of; None for other events, and other jobs' results."""
    if event.type != "completed" or event.job is None:
        return None
    try:
        return pictures_of(event.job, msgspec.convert(event.fields.get("result"), GenerationResult))
    except msgspec.ValidationError:
        return None


def preview_of(event: Event) -> Preview | None:
    """The preview that an event tells of."""
    if event.type != "milestone" or event.job is None or event.fields.get("name") != "preview_ready":
        return None
    return _preview(event.job, event.fields.get("data"))


class _PreviewData(msgspec.Struct, frozen=True):
    number: int
    step: int | None = None


def _preview(job_id: str, told: object) -> Preview | None:
    """A preview from what its worker told. The number only makes each a new URL: only the newest can be had."""
    try:
        data = msgspec.convert(told, _PreviewData)
    except msgspec.ValidationError:
        return None
    return Preview(number=data.number, step=data.step, url=f"{url_of(job_id)}/preview?number={data.number}")


def _progress_of(job: Job) -> GenerationProgress | None:
    try:
        return msgspec.convert(job.progress, GenerationProgress | None)
    except msgspec.ValidationError:
        return None
