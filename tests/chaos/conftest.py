"""Worker processes that are ended with the test."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import _die_with_parent

ROOT = Path(__file__).parents[2]

Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def spawn(url: str, queue_name: str) -> Iterator[Spawn]:
    """Start a worker process; options as `slots=4, lease_ms=2000`."""
    started: list[subprocess.Popen[bytes]] = []

    def spawn(queue: str = queue_name, **options: object) -> "subprocess.Popen[bytes]":
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.worker_process", url, queue, *words],
            cwd=ROOT,
            preexec_fn=_die_with_parent,
        )
        started.append(process)
        return process

    yield spawn
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(10)
