"""Worker processes that are ended with the test."""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from orchestrator.queue import Queue
from tests.chaos.checks import Spawn
from tests.servers import Server, _die_with_parent

ROOT = Path(__file__).parents[2]
QUIET = Path()


@pytest.fixture
def spawn(url: str, queue_name: str) -> Iterator[Spawn]:
    """Start a worker process; options as `slots=4, lease_ms=2000`, `to` = another server's URL, `log` for stderr."""
    started: list[subprocess.Popen[bytes]] = []

    def spawn(
        queue: str = queue_name, to: str = url, log: Path = QUIET, **options: object
    ) -> "subprocess.Popen[bytes]":
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        with contextlib.nullcontext() if log is QUIET else log.open("wb") as lines:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.worker_process", to, queue, *words],
                cwd=ROOT,
                stderr=lines,
                preexec_fn=_die_with_parent,
            )
        started.append(process)
        return process

    yield spawn
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(10)


@pytest.fixture
def mortal(runtime_folder: Path) -> Iterator[Server]:
    """A server with an append-only file, to be killed and started again."""
    folder = Path(tempfile.mkdtemp(dir=runtime_folder))
    # With `everysec` a server whose disk is busy answers up to 2 s before it writes: a kill then loses what was told.
    server = Server("valkey", folder, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def lasting(mortal: Server, queue_name: str) -> AsyncIterator[Queue]:
    """A queue on the mortal server."""
    async with Queue(queue_name, mortal.url) as queue:
        yield queue
