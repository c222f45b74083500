"""The relay: each event in a queue's outbox becomes one delivery job per subscription that wants it."""

import asyncio
import contextlib
import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import msgspec
from redis.exceptions import RedisError, ResponseError

from orchestrator.errors import InvalidOption, StoreUnavailable
from orchestrator.events import Event
from orchestrator.generation import WEBHOOK_EVENTS, Generation, GenerationProgress, WebhookEvent
from orchestrator.job import MAX_ATTEMPTS, JobOptions, KeepJobs
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import connect, drop_connections, end_tasks
from webhooks.delivery import JOB_NAME, Delivery
from webhooks.latest import Latest
from webhooks.message import Composer
from webhooks.schedule import Schedule
from webhooks.signature import message_id

GROUP = "relay"
# One name for all relays. A pending entry belongs to whoever holds it at the moment, and is found by its idle time
# alone, so there are no consumers of dead processes to clean up (XGROUP DELCONSUMER would drop what they still hold).
CONSUMER = "relay"
BATCH = 100
BLOCK_MS = 1000
CLAIM_IDLE_MS = 30_000
CLAIM_EVERY_S = 10.0
STOP_S = 3.0
RETRY_S = 1.0
KEEP_DELIVERED_S = 24 * 3600
KEEP_FAILED_S = 30 * 24 * 3600

log = get_logger("webhooks")

Fields: TypeAlias = dict[bytes, bytes]


class Entry(NamedTuple):
    """An entry of the outbox."""

    id: str
    fields: Fields


class Subscription(msgspec.Struct, frozen=True):
    """Who wants to hear what: today only the job's own `webhook_url`, whose key is a hash of the URL."""

    key: str
    url: str
    events: tuple[WebhookEvent, ...]


class Relay:
    """Reads the outbox of one queue; several relays share its work.

    An entry is acknowledged (and deleted, in the same script) after all its deliveries are queued. A delivery's id is
    a hash of queue, event and subscription, so doing the same entry again, after a crash or a lost reply, adds nothing.
    """

    def __init__(
        self,
        source: Queue,
        deliveries: Queue,
        composer: Composer,
        schedule: Schedule,
        latest: Latest,
        url: str,
        *,
        block_ms: int = BLOCK_MS,
        claim_idle_ms: int = CLAIM_IDLE_MS,
    ) -> None:
        self._source = source
        self._deliveries = deliveries
        self._composer = composer
        self._schedule = schedule
        self._latest = latest
        self._block_ms = block_ms
        self._claim_idle_ms = claim_idle_ms
        # A connection of its own, because a blocked read would hold up every other user of it.
        self._reader = connect(url, max_connections=1, timeout_s=block_ms / 1000 + 5)
        self._batch: list[Entry] = []
        self._claim_from = "0-0"
        self._claim_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Relay until `stop`. Whatever happens to Redis meanwhile, this goes on."""
        work = asyncio.create_task(self._work(stop))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            # A read ends by itself within its block; only a call that waits for an absent Redis is cut off.
            await asyncio.wait({work}, timeout=STOP_S)
        finally:
            await end_tasks(stopped, work)
            await self.close()
        if not work.cancelled():
            work.result()

    async def _work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.step()
            except (StoreUnavailable, RedisError, OSError) as problem:
                log.warning("relay.waiting_for_redis", queue=self._source.name, problem=problem)
                await drop_connections(self._reader)  # a primary that became a replica would keep it
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), RETRY_S)

    async def close(self) -> None:
        """Give the connection back. Entries in hand stay pending and are claimed by another relay, or by the next."""
        with contextlib.suppress(RedisError, OSError):
            await self._reader.aclose()

    async def step(self) -> int:
        """Read a batch, queue its deliveries, acknowledge it; returns the number of entries.

        Raises `StoreUnavailable` or a Redis error; the batch is then kept and is the first thing of the next step.
        """
        if not self._batch:
            self._batch = await self._read()
        for entry in self._batch:
            await self._fan_out(entry)
        await self._source.scripts.acknowledge(GROUP, [entry.id for entry in self._batch])
        done, self._batch = len(self._batch), []
        return done

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    async def _read(self) -> list[Entry]:
        """Entries whose relay is gone, else new ones; empty when none came within the block."""
        try:
            return await self._claim() or await self._next()
        except ResponseError as problem:
            if not str(problem).startswith("NOGROUP"):
                raise
        # A new queue, or a server that lost its memory. From the first entry on: what is still there is undelivered.
        await self._source.scripts.create_group(GROUP)
        return []

    async def _claim(self) -> list[Entry]:
        now = asyncio.get_running_loop().time()
        if now < self._claim_at:
            return []
        reply: Any = await self._reader.xautoclaim(
            self._source.keys.outbox, GROUP, CONSUMER, self._claim_idle_ms, self._claim_from, count=BATCH
        )
        self._claim_from = reply[0].decode()
        if self._claim_from == "0-0":  # all pending ones were looked at
            self._claim_at = now + CLAIM_EVERY_S
        return list(_entries(reply[1]))

    async def _next(self) -> list[Entry]:
        reply: Any = await self._reader.xreadgroup(
            GROUP, CONSUMER, {self._source.keys.outbox: ">"}, count=BATCH, block=self._block_ms
        )
        return [entry for _, found in reply for entry in _entries(found)]

    # ── fan-out ──────────────────────────────────────────────────────────────────────────────────────

    async def _fan_out(self, entry: Entry) -> None:
        try:
            deliveries = await self._deliveries_of(entry)
        except (KeyError, ValueError, TypeError, OverflowError, msgspec.MsgspecError) as problem:
            # Reading it again would end the same way, for ever.
            log.error("relay.dropped", queue=self._source.name, entry=entry.id, error=repr(problem))
            return
        for delivery in deliveries:
            try:
                data = msgspec.Raw(msgspec.json.encode(delivery))
                await self._deliveries.fan_out(JOB_NAME, data, self._options(delivery))
            except InvalidOption as problem:
                log.error("relay.dropped", queue=self._source.name, entry=entry.id, error=str(problem))
            else:
                await self._latest.note(delivery)

    async def _deliveries_of(self, entry: Entry) -> list[Delivery]:
        event = Event.decode(entry.fields[b"id"].decode(), entry.fields[b"event"])
        generation = msgspec.json.decode(entry.fields[b"data"], type=Generation)
        wanted = [found for found in subscriptions_of(generation) if WEBHOOK_EVENTS.get(event.type) in found.events]
        if not wanted or event.job is None:
            return []
        message = self._composer.compose(event, generation, await self._last_progress(event))
        body = msgspec.json.encode(message)
        return [
            Delivery(
                queue=self._source.name,
                job=event.job,
                event=event.id,
                subscription=subscription.key,
                type=message.type,
                url=subscription.url,
                message=message_id(event.job, event.id),
                body=msgspec.Raw(body),
            )
            for subscription in wanted
        ]

    async def _last_progress(self, event: Event) -> GenerationProgress | None:
        """How far a failed generation came, as long as its record says so."""
        if event.type != "failed" or event.job is None:
            return None
        job = await self._source.get_job(event.job)
        if job is None or job.run != event.run or job.progress is None:
            return None
        return msgspec.convert(job.progress, GenerationProgress)

    def _options(self, delivery: Delivery) -> JobOptions:
        """Its record outlives by a day the last moment at which the same entry might be done again."""
        return JobOptions(
            id=delivery_id(delivery.queue, delivery.event, delivery.subscription),
            group=delivery.subscription,  # receivers share the deliverers: a slow one holds up only itself
            attempts=self._schedule.attempts,
            max_stalled=MAX_ATTEMPTS,  # that a relay dies is no fault of the message
            remove_on_complete=KeepJobs(age_s=KEEP_DELIVERED_S),
            remove_on_fail=KeepJobs(age_s=KEEP_FAILED_S),
        )


def subscriptions_of(generation: Generation) -> list[Subscription]:
    """Who wants to hear of this generation."""
    if generation.webhook_url is None:
        return []
    key = hashlib.sha256(generation.webhook_url.encode()).hexdigest()[:32]
    return [Subscription(key, generation.webhook_url, generation.webhook_events)]


def delivery_id(queue: str, event_id: str, subscription: str) -> str:
    """The id of the delivery job: the same whoever makes it, and however often."""
    return hashlib.sha256("\0".join((queue, event_id, subscription)).encode()).hexdigest()[:32]


def _entries(found: Iterable[tuple[bytes, Fields | None]]) -> Iterable[Entry]:
    for entry_id, fields in found:
        if fields is not None:  # deleted while it was pending
            yield Entry(entry_id.decode(), fields)
