"""The application under test, in memory and on a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from orchestrator.api.app import create_app
from orchestrator.api.context import Context
from orchestrator.api.protocol import Limits
from orchestrator.api.server import Server, make_server
from orchestrator.settings import Settings
from tests.conftest import wait_until


@pytest.fixture
def settings(tmp_path: Path, url: str, queue_name: str) -> Settings:
    """Settings of a service on the run's server, with a queue and a folder of its own."""
    return Settings(redis_url=url, queue=queue_name, data_dir=tmp_path, port=0, webhook_allow_networks=("127.0.0.0/8",))


@pytest.fixture
async def app(settings: Settings) -> AsyncIterator[Starlette]:
    """The application, running."""
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
def context(app: Starlette) -> Context:
    """What the application's resources share."""
    context: Context = app.state.context
    return context


@pytest.fixture
async def api(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """A client that calls the application without a socket."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@asynccontextmanager
async def serving(settings: Settings, limits: Limits | None = None) -> AsyncIterator[Server]:
    """A real server on a free port, stopped at the end."""
    server = make_server(settings, limits)
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started or task.done())
    try:
        yield server
    finally:
        server.should_exit = True
        await task


@pytest.fixture
async def live(settings: Settings) -> AsyncIterator[Server]:
    """A real server."""
    async with serving(settings) as server:
        yield server


@pytest.fixture
async def web(live: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the real server."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{live.port}", timeout=30, trust_env=False) as client:
        yield client
