"""The scene of a test."""

import pytest

from orchestrator.queue import Queue
from tests.lua.scene import Scene


@pytest.fixture
async def scene(queue: Queue) -> Scene:
    """An empty queue to arrange."""
    return Scene(queue)
