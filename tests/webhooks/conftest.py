"""A rig for each test that relays."""

from collections.abc import AsyncIterator

import pytest

from orchestrator.scripts import Client
from tests.webhooks.rig import Rig
from webhooks.relay import GROUP


@pytest.fixture
async def rig(client: Client, url: str, queue_name: str) -> AsyncIterator[Rig]:
    rig = Rig(client, url, queue_name)
    await rig.source.scripts.create_group(GROUP)
    yield rig
    for relay in rig.relays:
        await relay.close()
