"""Fixtures shared by all tests: a real server of this run's own, a fresh queue name for each test."""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.queue import Queue
from orchestrator.scripts import Client, connect
from tests.lua.scene import Scene
from tests.servers import Server, require

WAIT_S = 20.0


class Servers:
    """The servers of this run, each started when a test first asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: dict[str, Server] = {}

    def get(self, kind: str) -> Server:
        """The server of this kind; skips the test where there is none."""
        if kind not in self._started:
            require(kind)
            server = Server(kind, self._folder / kind)
            server.start()
            self._started[kind] = server
        return self._started[kind]

    def stop(self) -> None:
        """Stop all of them."""
        for server in self._started.values():
            server.stop()


@pytest.fixture(scope="session")
def runtime_folder() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets."""
    folder = Path(tempfile.mkdtemp(prefix="kargah-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def servers(runtime_folder: Path) -> Iterator[Servers]:
    """All servers of this run."""
    servers = Servers(runtime_folder)
    yield servers
    servers.stop()


@pytest.fixture
def server(servers: Servers, request: pytest.FixtureRequest) -> Server:
    """The test's server: what it was parametrised with (indirectly), else what TEST_SERVER says, else Valkey."""
    return servers.get(getattr(request, "param", os.environ.get("TEST_SERVER", "valkey")))


@pytest.fixture
def url(server: Server) -> str:
    """The server's address."""
    return server.url


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    """A client that is closed after the test."""
    client = connect(url)
    yield client
    await client.aclose()


@pytest.fixture
def queue_name() -> str:
    """A queue that no other test uses."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
async def queue(queue_name: str, client: Client) -> Queue:
    """A fresh queue."""
    return Queue(queue_name, client)


@pytest.fixture
async def scene(queue: Queue) -> Scene:
    """A fresh queue to arrange."""
    return Scene(queue)


WaitUntil = Callable[..., Awaitable[None]]


async def wait_until(condition: Callable[[], Awaitable[bool] | bool], timeout_s: float = WAIT_S) -> None:
    """Wait until `condition` (sync or async) holds; fail after `timeout_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        held = condition()
        if await held if isinstance(held, Awaitable) else held:
            return
        if loop.time() > deadline:
            pytest.fail(f"the condition did not hold within {timeout_s:g} s")
        await asyncio.sleep(0.01)
