"""The models that are offered, by their cards."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from orchestrator.api.context import Context
from orchestrator.api.responses import JsonResponse


class Models:
    """The resource; it changes only with a restart."""

    def __init__(self, context: Context) -> None:
        self.cards = list(context.cards.values())

    def routes(self) -> list[BaseRoute]:
        """Where it is found, under `/v1`."""
        return [Route("/models", self.read_all, methods=["GET"])]

    async def read_all(self, _: Request) -> Response:
        """All cards, the default first."""
        return JsonResponse({"data": self.cards})
