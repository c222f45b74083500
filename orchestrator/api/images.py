"""Pictures: the finished ones from the storage, and the newest preview of one under way."""

import hashlib

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from orchestrator.api.context import Context
from orchestrator.api.queries import job_id_of
from orchestrator.api.resource import generation_of
from orchestrator.errors import FileMissing, JobNotFound
from orchestrator.generation import GenerationResult, Image
from orchestrator.job import Job

TYPES = {"image/png": "png", "image/webp": "webp", "image/jpeg": "jpg"}
ASK_AGAIN = "private, no-cache"  # a retry makes other pictures under the same URLs; the ETag names the attempt


class Images:
    """The resource. Only paths that the job's own result names are read, and only as pictures."""

    def __init__(self, context: Context) -> None:
        self.queue = context.queue
        self.storage = context.storage

    def routes(self) -> list[BaseRoute]:
        """Where it is found, under `/v1`."""
        return [
            Route("/generations/{id}/images/{index:int}", self.read, methods=["GET"]),
            Route("/generations/{id}/preview", self.read_preview, methods=["GET"]),
        ]

    async def read(self, request: Request) -> Response:
        """A finished picture. Clients keep it, and ask by its ETag whether it is still the one."""
        job_id, index = job_id_of(request), request.path_params["index"]
        job = await self.queue.get_job(job_id)
        if job is None:
            raise JobNotFound(f"there is no generation {job_id}")
        image = image_of(job, index)
        ending = TYPES[image.content_type]
        etag = f'"{hashlib.sha256(image.path.encode()).hexdigest()[:32]}"'
        headers = {
            "ETag": etag,
            "Cache-Control": ASK_AGAIN,
            "Content-Disposition": f'inline; filename="{job_id}-{index}.{ending}"',
        }
        if _has(request, etag):
            return Response(status_code=304, headers=headers)
        file = await self.storage.get(image.path)
        headers["Content-Length"] = str(file.size)
        if request.method == "HEAD":
            return Response(media_type=image.content_type, headers=headers)
        return StreamingResponse(file.chunks, media_type=image.content_type, headers=headers)

    async def read_preview(self, request: Request) -> Response:
        """The newest preview. Its URL's number is for caches only."""
        job_id = job_id_of(request)
        picture = await self.queue.get_preview(job_id)
        if picture is None:
            raise JobNotFound(f"there is no preview of {job_id}")
        return Response(picture, media_type="image/webp", headers={"Cache-Control": "no-store"})


def image_of(job: Job, index: int) -> Image:
    """Picture `index` of a job. Raises `FileMissing`."""
    generation_of(job)
    result = job.result_as(GenerationResult)
    if result is None:
        raise FileMissing(f"generation {job.id} is {job.state}; it has no pictures")
    if not 0 <= index < len(result.images):
        raise FileMissing(f"generation {job.id} has pictures 0 to {len(result.images) - 1}")
    image = result.images[index]
    if not image.path.startswith(f"{job.id}/") or image.content_type not in TYPES:
        raise FileMissing(f"picture {index} of generation {job.id} is not one of its files")
    return image


def _has(request: Request, etag: str) -> bool:
    given = request.headers.get("if-none-match", "")
    return given.strip() == "*" or etag in (tag.strip().removeprefix("W/") for tag in given.split(","))
