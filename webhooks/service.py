"""The relay process: relay, deliverer and duties, together from start to stop."""

import asyncio

from orchestrator import signing_secret
from orchestrator.addresses import AddressPolicy
from orchestrator.embedded import redis_url
from orchestrator.errors import StoreUnavailable
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.service import duties
from orchestrator.settings import Settings
from orchestrator.worker import Worker
from webhooks.delivery import Deliverer
from webhooks.latest import Latest
from webhooks.message import Composer
from webhooks.relay import Relay
from webhooks.schedule import Schedule
from webhooks.transport import Transport

QUEUE = "webhooks"
CONCURRENCY = 50
PER_RECEIVER = 10
"""Posts to one receiver at once, over all processes: one that never answers leaves the others their slots."""
RETRY_S = 1.0
STOP_GRACE_S = 5.0

log = get_logger("webhooks")


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Deliver webhooks until `stop`. Any number of such processes share the work.

    Attempts in flight get a few seconds to end; then they are handed back and are made again by another process.
    Raises `InvalidOption` for settings that cannot be.
    """
    url = redis_url(settings)
    keys = signing_secret.keys(signing_secret.load(settings))
    schedule = Schedule(settings.webhook_retry_s)
    transport = Transport(AddressPolicy.from_settings(settings), settings.webhook_timeout_s)
    async with Queue(settings.queue, url) as source, Queue(QUEUE, url) as deliveries:
        latest = Latest(deliveries.client, deliveries.keys, schedule.longest_s)
        relay = Relay(source, deliveries, Composer(settings), schedule, latest, url, claim_idle_ms=settings.lease_ms)
        worker = Worker(
            QUEUE,
            Deliverer(transport, keys, schedule, latest),
            url,
            concurrency=CONCURRENCY,
            lease_ms=settings.lease_ms,
            cancel_grace_ms=100,  # an attempt that is cut off stops at once
        )
        async with duties(source, lease_ms=settings.lease_ms), asyncio.TaskGroup() as tasks:
            tasks.create_task(_share_between_receivers(deliveries), name="shares")
            tasks.create_task(relay.run(stop), name="relay")
            tasks.create_task(worker.run(), name="deliverer")
            log.info("relay.started", queue=settings.queue, concurrency=CONCURRENCY, attempts=schedule.attempts)
            await stop.wait()
            await worker.stop(min(STOP_GRACE_S, settings.webhook_timeout_s))
    log.info("relay.stopped", queue=settings.queue)


async def _share_between_receivers(deliveries: Queue) -> None:
    """Limit what one receiver can take, as soon as Redis is there."""
    while True:
        try:
            return await deliveries.set_group_defaults(concurrency=PER_RECEIVER)
        except StoreUnavailable as problem:
            log.warning("relay.waiting_for_redis", problem=problem)
            await asyncio.sleep(RETRY_S)
