"""Generations: asking for pictures, looking at them, canceling, retrying and removing."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from orchestrator.addresses import check_registration
from orchestrator.api.bodies import read_json
from orchestrator.api.context import Context
from orchestrator.api.idempotency import check_repeat, id_of, read_key, with_seed
from orchestrator.api.queries import job_id_of, read_cursor, read_int, read_state, write_cursor
from orchestrator.api.resource import Resource, resource_of, resources_of, url_of
from orchestrator.api.responses import JsonResponse
from orchestrator.backoff import Backoff
from orchestrator.errors import InvalidOption, JobNotFound
from orchestrator.generation import JOB_NAME, WEBHOOK_EVENTS, Generation, GenerationRequest, ModelCard, complete
from orchestrator.job import Job, JobOptions, KeepJobs
from orchestrator.log import get_logger
from orchestrator.settings import Settings

log = get_logger("api")

PAGE = 50
MAX_PAGE = 100
BACKOFF_JITTER = 0.2
MAX_REASON_CHARS = 200


class CancelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a cancellation, if there is one."""

    reason: str = ""


class Page(msgspec.Struct, frozen=True):
    """A part of the list; `next_cursor` is null on the last one."""

    data: list[Resource]
    next_cursor: str | None


class Generations:
    """The resource. Each request is one script call; what it answers is the job as that call left it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.queue = context.queue
        self._request = msgspec.json.Decoder(GenerationRequest)
        self._cancel = msgspec.json.Decoder(CancelBody)

    def routes(self) -> list[BaseRoute]:
        """Where it is found, under `/v1`."""
        one = "/generations/{id}"
        return [
            Route("/generations", self.create, methods=["POST"]),
            Route("/generations", self.read_all, methods=["GET"]),
            Route(one, self.read, methods=["GET"]),
            Route(one, self.remove, methods=["DELETE"]),
            Route(f"{one}/cancel", self.cancel, methods=["POST"]),
            Route(f"{one}/retry", self.retry, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Accept a generation: 202, where it will be found, and how it looks now."""
        key = read_key(request)
        asked = with_seed(await read_json(request, self._request), key)
        generation = complete(asked, self._card(asked.model))
        if generation.webhook_url is not None:
            await check_registration(generation.webhook_url, self.context.policy)
        options = options_of(generation, self.context.settings, asked.priority, id_of(key))
        job = await self.queue.add(JOB_NAME, generation, options)
        if job.duplicated:
            check_repeat(job, generation, options)
        log.info("generation.accepted", job=job.id, model=generation.model, is_repeat=job.duplicated)
        return _accepted(job)

    async def read_all(self, request: Request) -> Response:
        """A page of the list: the unfinished first, then the newest; or those of one status."""
        limit = read_int(request, "limit", PAGE, 1, MAX_PAGE)
        start = read_cursor(request)
        page = await self.queue.get_page(start, limit, read_state(request))
        cursor = write_cursor(start + limit) if page.looked == limit else None
        return JsonResponse(Page(resources_of(page.jobs), cursor))

    async def read(self, request: Request) -> Response:
        """One generation, with its newest preview."""
        job_id = job_id_of(request)
        job = await self.queue.get_job(job_id)
        if job is None:
            raise JobNotFound(f"there is no generation {job_id}")
        return JsonResponse(resource_of(job))

    async def cancel(self, request: Request) -> Response:
        """Cancel: at once while it waits; while it runs, its worker is asked and stops within a step."""
        has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
        body = await read_json(request, self._cancel) if has_body else CancelBody()
        if len(body.reason) > MAX_REASON_CHARS:
            raise InvalidOption("reason", f"must have at most {MAX_REASON_CHARS} characters")
        job = await self.queue.cancel(job_id_of(request), by="api", reason=body.reason)
        return _accepted(job)

    async def retry(self, request: Request) -> Response:
        """Begin a new run of a finished generation."""
        return _accepted(await self.queue.retry(job_id_of(request)))

    async def remove(self, request: Request) -> Response:
        """Remove a generation that does not run, and its pictures."""
        job_id = job_id_of(request)
        if not await self.queue.remove(job_id):
            raise JobNotFound(f"there is no generation {job_id}")
        return Response(status_code=204)

    def _card(self, model: str | None) -> ModelCard:
        cards = self.context.cards
        card = cards.get(model or self.context.default_model)
        if card is None:
            raise InvalidOption("model", f"is not offered here; choose one of {', '.join(cards)}")
        return card


def options_of(generation: Generation, settings: Settings, priority: int | None, job_id: str) -> JobOptions:
    """How the queue is to treat a generation."""
    return JobOptions(
        id=job_id,
        priority=settings.priority if priority is None else priority,
        attempts=settings.attempts,
        backoff=Backoff("exponential", settings.backoff_ms, jitter=BACKOFF_JITTER),
        timeout_ms=settings.timeout_s * 1000,
        remove_on_complete=KeepJobs(age_s=settings.keep_completed_s),
        remove_on_fail=KeepJobs(age_s=settings.keep_failed_s),
        notify=tuple(type_ for type_, event in WEBHOOK_EVENTS.items() if event in generation.webhook_events),
        has_files=True,
        affinity_key=generation.model,
    )


def _accepted(job: Job) -> Response:
    return JsonResponse(resource_of(job), 202, {"Location": url_of(job.id)})
