"""Whether the process lives, and whether it can do its work."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from orchestrator.api.context import Context
from orchestrator.api.responses import JsonResponse


class Health:
    """Two questions: restart me? (`/healthz`), send me requests? (`/readyz`)."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def routes(self) -> list[BaseRoute]:
        """Where it is found."""
        return [
            Route("/healthz", self.is_alive, methods=["GET"]),
            Route("/readyz", self.is_ready, methods=["GET"]),
        ]

    async def is_alive(self, _: Request) -> Response:
        """The process answers; nothing else is asked."""
        return JsonResponse({"status": "ok"})

    async def is_ready(self, _: Request) -> Response:
        """Redis runs our scripts; 503 otherwise."""
        counts = await self.context.queue.get_counts()
        return JsonResponse({"status": "ready", "counts": counts})
