"""Live events for many watchers over one Pub/Sub connection, without gaps."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Protocol, Self

from redis.exceptions import RedisError

from orchestrator.errors import KargahError
from orchestrator.events import Event, id_key
from orchestrator.keys import Keys
from orchestrator.log import get_logger
from orchestrator.scripts import Client, end_tasks, listen

log = get_logger("hub")

RETRY_S = 0.5
BACKFILL = 1000


class Lagged(KargahError):
    """The watcher fell behind, or events were trimmed while Redis was away: take a new snapshot."""


class Source(Protocol):
    """What a hub needs of a queue: `Queue`, which uses a hub itself."""

    name: str
    keys: Keys
    client: Client

    async def get_recent(self, start: int = 0, count: int = 50) -> tuple[list[Any], str]:
        """Some jobs, and the newest event id."""
        ...

    async def events_after(self, last_id: str, count: int = 1000) -> list[Event] | None:
        """The events after one that is still there."""
        ...


class Watch:
    """One watcher's events, in order, each once. Iterate it; `Lagged` ends it."""

    def __init__(self, job_id: str | None, maxsize: int) -> None:
        self.job_id = job_id
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
        if self._is_lagged:
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

    def __init__(self, queue: Source) -> None:
        self._queue = queue
        self._watches: dict[str | None, set[Watch]] = {}  # by job; None: of the whole queue
        self._last_id: str | None = None
        self._subscribed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"hub {self._queue.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_all()
        if self._task is not None:
            await end_tasks(self._task)

    @contextlib.asynccontextmanager
    async def watch(self, job_id: str | None = None, maxsize: int = 1000) -> AsyncIterator[Watch]:
        """Watch a job, or the whole queue. Every event after the entry of the context reaches the watch.

        Take the snapshot inside, then `skip_to` its last id. A watcher more than `maxsize` events behind is ended.
        """
        watch = Watch(job_id, maxsize)
        self._watches.setdefault(job_id, set()).add(watch)
        try:
            await self._subscribed.wait()
            yield watch
        finally:
            self._watches[job_id].discard(watch)
            if not self._watches[job_id]:
                del self._watches[job_id]

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
                    last_id, _, lines = message.partition(b"\n")
                    for event in Event.decode_together(last_id, lines):
                        self._hand_out(event)

    async def _fill_gap(self) -> None:
        """Hand out what happened since the last event that came."""
        if self._last_id is None:
            _, self._last_id = await self._queue.get_recent(0, 1)
            return
        while True:
            events = await self._queue.events_after(self._last_id, BACKFILL)
            if events is None:
                self._end_all()
                _, self._last_id = await self._queue.get_recent(0, 1)
                return
            for event in events:
                self._hand_out(event)
            if len(events) < BACKFILL:
                return

    def _hand_out(self, event: Event) -> None:
        if self._last_id is None or id_key(event.id) > id_key(self._last_id):
            self._last_id = event.id
        for concerned in {event.job, None}:
            for watch in tuple(self._watches.get(concerned, ())):
                watch._offer(event)

    def _end_all(self) -> None:
        for watches in tuple(self._watches.values()):
            for watch in tuple(watches):
                watch._end()
