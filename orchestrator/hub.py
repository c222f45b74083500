"""Live events for many watchers over one Pub/Sub connection, without gaps."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

from redis.exceptions import RedisError

from orchestrator.errors import KargahError
from orchestrator.events import Event, id_key
from orchestrator.log import get_logger
from orchestrator.queue import Queue
from orchestrator.scripts import end_tasks, listen

log = get_logger("hub")

RETRY_S = 0.5
BACKFILL = 1000


class Lagged(KargahError):
    """The watcher fell behind, or events were trimmed while Redis was away: take a new snapshot."""


class Watch:
    """One watcher's events, in order, each once. Iterate it; `Lagged` ends it."""

    def __init__(self, job_id: str | None, maxsize: int) -> None:
        self._job_id = job_id
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(maxsize)
        self._last = (0, 0)
        self._is_lagged = False

    def skip_to(self, last_id: str) -> None:
        """Leave out all events up to and including `last_id`: the watcher has them from a snapshot."""
        self._last = max(self._last, id_key(last_id))

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._is_lagged and self._events.empty():
                raise Lagged("the watcher fell behind; take a new snapshot")
            event = await self._events.get()
            if event is None:
                continue
            key = id_key(event.id)
            if key > self._last:
                self._last = key
                return event

    def _offer(self, event: Event) -> None:
        if self._is_lagged or (self._job_id is not None and event.job != self._job_id):
            return
        try:
            self._events.put_nowait(event)
        except asyncio.QueueFull:
            self._end()

    def _end(self) -> None:
        self._is_lagged = True
        if self._events.empty():
            self._events.put_nowait(None)


class Hub:
    """Listens to a queue's live channel and hands every event to the watchers it concerns.

    After an outage it subscribes again and fills the gap from the queue's stream; where the stream does not
    reach back far enough the watchers end with `Lagged`, which tells them to take a new snapshot.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._watches: set[Watch] = set()
        self._last_id: str | None = None
        self._subscribed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"hub {self._queue.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for watch in self._watches:
            watch._end()
        if self._task is not None:
            await end_tasks(self._task)

    @contextlib.asynccontextmanager
    async def watch(self, job_id: str | None = None, maxsize: int = 1000) -> AsyncIterator[Watch]:
        """Watch a job, or the whole queue. Every event after the entry of the context reaches the watch.

        Take the snapshot inside, then `skip_to` its last id. A watcher more than `maxsize` events behind is ended.
        """
        watch = Watch(job_id, maxsize)
        self._watches.add(watch)
        try:
            await self._subscribed.wait()
            yield watch
        finally:
            self._watches.discard(watch)

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, KargahError, TimeoutError) as problem:
                log.warning("hub.disconnected", queue=self._queue.name, problem=problem)
            except Exception:  # nobody looks after this task, and watchers would wait for ever
                log.exception("hub.failed", queue=self._queue.name)
            self._subscribed.clear()
            await asyncio.sleep(RETRY_S)

    async def _listen(self) -> None:
        async with listen(self._queue.client, self._queue.keys.live) as listener:
            await self._fill_gap()
            self._subscribed.set()
            while True:
                message = await listener.next_message()
                if message is None:  # nothing happened, or it was lost between the nodes of a cluster
                    await self._fill_gap()
                else:
                    self._hand_out(Event.decode_entry(message))

    async def _fill_gap(self) -> None:
        """Hand out what happened since the last event that came."""
        if self._last_id is None:
            _, self._last_id = await self._queue.get_recent(0, 1)
            return
        while True:
            events = await self._queue.events_after(self._last_id, BACKFILL)
            if events is None:
                for watch in self._waiting():
                    watch._end()
                _, self._last_id = await self._queue.get_recent(0, 1)
                return
            for event in events:
                self._hand_out(event)
            if len(events) < BACKFILL:
                return

    def _hand_out(self, event: Event) -> None:
        if self._last_id is None or id_key(event.id) > id_key(self._last_id):
            self._last_id = event.id
        for watch in self._waiting():
            watch._offer(event)

    def _waiting(self) -> Iterator[Watch]:
        return iter(tuple(self._watches))
