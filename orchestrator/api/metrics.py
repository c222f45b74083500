"""All queues' numbers, for Prometheus."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from orchestrator.api.context import Context
from orchestrator.errors import InvalidOption, LayoutMismatch, StoreUnavailable
from orchestrator.log import get_logger
from orchestrator.metrics import Overview, content_type, prometheus_text
from orchestrator.queue import Queue

log = get_logger("api")

AT_ONCE = 16  # calls to Redis
SCRAPE_S = 8.0  # Prometheus gives up after 10 s


class MetricsPage:
    """`/metrics`: what `Queue.export_prometheus_metrics` tells, of every queue of this Redis."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def routes(self) -> list[BaseRoute]:
        """Where it is found."""
        return [Route("/metrics", self.read, methods=["GET"])]

    async def read(self, request: Request) -> Response:
        """The text, in the format that is asked for."""
        accept = request.headers.get("accept", "")
        try:
            async with asyncio.timeout(SCRAPE_S):
                overviews = await self._overviews()
        except TimeoutError:
            raise StoreUnavailable("reading all queues took too long") from None
        headers = {"Cache-Control": "no-store"}
        return Response(prometheus_text(overviews, accept=accept), 200, headers, content_type(accept))

    async def _overviews(self) -> list[Overview]:
        own = self.context.queue
        names = {own.name, *await own.get_queue_names()}
        at_once = asyncio.Semaphore(AT_ONCE)

        async def overview(name: str) -> Overview | None:
            try:
                async with at_once:
                    return await Queue(name, own.client, deadline_s=SCRAPE_S).get_overview()
            except (InvalidOption, LayoutMismatch) as problem:  # not one of ours: the others are told of all the same
                log.warning("metrics.queue_left_out", queue=name, problem=problem)
                return None

        overviews = await asyncio.gather(*map(overview, sorted(names)))
        return [each for each in overviews if each is not None]
