"""The application: all resources under their limits, and the parts they share for as long as it runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Router

from orchestrator.api import pages
from orchestrator.api.context import Context
from orchestrator.api.events import Events
from orchestrator.api.generations import Generations
from orchestrator.api.health import Health
from orchestrator.api.images import Images
from orchestrator.api.limits import BodyLimit
from orchestrator.api.metrics import MetricsPage
from orchestrator.api.models import Models
from orchestrator.api.origins import TrustedOrigins
from orchestrator.api.problems import HANDLERS
from orchestrator.api.security import SecurityHeaders
from orchestrator.scripts import Client
from orchestrator.settings import Settings


def create_app(settings: Settings, *, client: Client | None = None) -> Starlette:
    """The ASGI application. Without `client` it connects by the settings; Redis may come later than the application."""
    context = Context(settings, client)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with context.opened():
            yield

    resources = (Generations(context), Images(context), Events(context), Models(context))
    v1 = Router([route for resource in resources for route in resource.routes()], redirect_slashes=False)
    app = Starlette(
        routes=[Mount("/v1", v1), *Health(context).routes(), *MetricsPage(context).routes(), *pages.routes()],
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(TrustedOrigins, settings=settings),
            Middleware(BodyLimit, max_bytes=settings.body_limit_bytes),
        ],
        exception_handlers=HANDLERS,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.context = context
    return app
