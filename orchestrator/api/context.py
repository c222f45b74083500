"""What the resources share: one queue, one hub, one storage and the models of this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from orchestrator import service
from orchestrator.addresses import AddressPolicy
from orchestrator.api.streams import Streams
from orchestrator.embedded import redis_url
from orchestrator.errors import StoreUnavailable
from orchestrator.hub import Hub, Watch
from orchestrator.models import load_cards
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from orchestrator.settings import Settings
from orchestrator.storage import Storage, open_storage

DEADLINE_S = 0.8  # of one call to the store: a client learns within a second that it is away
WATCH_EVENTS = 1000  # what a stream may lag behind before it is closed


class Context:
    """The parts of one api process; `opened` holds their connections and duties."""

    def __init__(self, settings: Settings, client: Client | None = None) -> None:
        self.settings = settings
        self.cards = {card.id: card for card in load_cards(settings)}
        self.default_model = next(iter(self.cards))
        self.policy = AddressPolicy.from_settings(settings)
        self.storage: Storage = open_storage(settings)
        self.queue = Queue(settings.queue, redis=client or redis_url(settings), deadline_s=DEADLINE_S)
        self.hub = Hub(self.queue)
        self.streams = Streams()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connected, watching, and doing its share of the duties, until the end of the block."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.queue)
            await stack.enter_async_context(self.hub)
            duties = service.duties(self.queue, storage=self.storage, lease_ms=self.settings.lease_ms)
            await stack.enter_async_context(duties)
            try:
                yield
            finally:
                self.streams.stop()

    @asynccontextmanager
    async def watching(self, job_id: str | None) -> AsyncIterator[Watch]:
        """The events of a job or of the whole queue from now on. Raises `StoreUnavailable` while Redis is away."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(DEADLINE_S):
                    watch = await stack.enter_async_context(self.hub.watch(job_id, maxsize=WATCH_EVENTS))
            except TimeoutError:
                raise StoreUnavailable("there is no connection to Redis for events") from None
            yield watch
