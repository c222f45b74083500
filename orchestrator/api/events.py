"""Watching generations: the history of one, and streams of one or of all, without gaps or repetitions."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from orchestrator.api.context import Context
from orchestrator.api.queries import job_id_of
from orchestrator.api.resource import pictures_in, preview_of, resource_of, resources_of
from orchestrator.api.streams import HEARTBEAT, EventStream, Write, frame
from orchestrator.errors import InvalidOption, JobNotFound
from orchestrator.events import TERMINAL, Event, id_key
from orchestrator.hub import Watch

RECENT = 50
PAGE = 1000
RECONNECT_MS = 1000
NEVER_MS = 24 * 3600 * 1000
CACHED_EVENTS = 1024


class Events:
    """The resource. A client's last event id says where it left off; see README.md for the contract."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._texts: dict[str, bytes] = {}

    def routes(self) -> list[BaseRoute]:
        """Where it is found, under `/v1`."""
        return [
            Route("/events", self.watch_all, methods=["GET"]),
            Route("/generations/{id}/events", self.watch_one, methods=["GET"]),
        ]

    async def watch_one(self, request: Request) -> EventStream | Response:
        """The events of one generation: a stream where the client accepts one, else its history as JSON."""
        job_id, after = job_id_of(request), last_event_id(request)
        if "text/event-stream" not in request.headers.get("accept", ""):
            return await self._history(job_id, after)

        async def feed(write: Write) -> None:
            async with self.context.watching(job_id) as watch:
                if not await self._begin_one(job_id, after, watch, write):
                    await self._follow(watch, write, until=frozenset((*TERMINAL, "removed")))
                await write(frame("end", b"{}", retry_ms=NEVER_MS))

        return EventStream(self.context.streams, feed)

    async def watch_all(self, request: Request) -> EventStream:
        """A stream of everything that happens in the queue."""
        after = last_event_id(request)

        async def feed(write: Write) -> None:
            async with self.context.watching(None) as watch:
                last_id = None if after is None else await self._catch_up(after, write)
                if last_id is None:
                    last_id = await self._send_recent(write, is_reset=after is not None)
                watch.skip_to(last_id)
                await self._follow(watch, write, until=frozenset())

        return EventStream(self.context.streams, feed)

    async def _history(self, job_id: str, after: str | None) -> Response:
        snapshot = await self.context.queue.get_snapshot(job_id)
        if snapshot is None:
            raise JobNotFound(f"there is no generation {job_id}")
        events = [event for event in snapshot.history if after is None or id_key(event.id) > id_key(after)]
        texts = b",".join(map(self._text, events))
        body = b'{"data":[' + texts + b'],"last_id":' + msgspec.json.encode(snapshot.last_id) + b"}"
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    async def _begin_one(self, job_id: str, after: str | None, watch: Watch, write: Write) -> bool:
        """Bring the client up to now; True if nothing more will come."""
        snapshot = await self.context.queue.get_snapshot(job_id)
        if snapshot is None:
            raise JobNotFound(f"there is no generation {job_id}")
        watch.skip_to(snapshot.last_id)
        if after is None or id_key(after) > id_key(snapshot.last_id):
            frames = [] if after is None else [frame("reset", b"{}")]
            data = msgspec.json.encode({"generation": resource_of(snapshot.job)})
            frames += [frame("snapshot", data), _ready(snapshot.last_id)]
        else:
            resource_of(snapshot.job)  # a job that is no generation is not found here either
            missed = [event for event in snapshot.history if id_key(event.id) > id_key(after)]
            frames = [HEARTBEAT, *map(self._frame, missed)]
        await write(b"".join(frames))
        return snapshot.job.state.is_finished

    async def _catch_up(self, after: str, write: Write) -> str | None:
        """Send what came after `after`; the last id, or None where the queue's stream does not reach back so far."""
        while True:
            events = await self.context.queue.events_after(after, PAGE)
            if events is None:
                return None
            await write(b"".join([HEARTBEAT, *map(self._frame, events)]))
            if len(events) < PAGE:
                return events[-1].id if events else after
            after = events[-1].id

    async def _send_recent(self, write: Write, *, is_reset: bool) -> str:
        jobs, last_id = await self.context.queue.get_recent(0, RECENT)
        recent = sorted(resources_of(jobs), key=lambda resource: resource.created_at)
        frames = [frame("reset", b"{}")] if is_reset else []
        frames += [frame("snapshot", msgspec.json.encode({"generation": resource})) for resource in recent]
        await write(b"".join([*frames, _ready(last_id)]))
        return last_id

    async def _follow(self, watch: Watch, write: Write, *, until: frozenset[str]) -> None:
        while True:
            event = await self.context.streams.next_event(watch)
            await write(HEARTBEAT if event is None else self._frame(event))
            if event is not None and event.type in until:
                return

    def _frame(self, event: Event) -> bytes:
        return frame(event.type, self._text(event), event.id)

    def _text(self, event: Event) -> bytes:
        """The event as JSON, made once for all who watch it."""
        text = self._texts.get(event.id)
        if text is None:
            if len(self._texts) >= CACHED_EVENTS:
                self._texts.clear()
            text = self._texts[event.id] = event_text(event)
        return text


def event_text(event: Event) -> bytes:
    """An event's flat JSON, with its id and the URLs that belong to it."""
    added: dict[str, object] = {"id": event.id}
    if preview := preview_of(event):
        added["url"] = preview.url
    if pictures := pictures_in(event):
        added["images"] = pictures
    return msgspec.json.encode(added)[:-1] + b"," + event.encode()[1:]


def last_event_id(request: Request) -> str | None:
    """Where the client left off: the header that browsers send by themselves, or the parameter for all others."""
    given = request.headers.get("last-event-id") or request.query_params.get("last_event_id")
    if not given:
        return None
    try:
        id_key(given)
    except ValueError:
        raise InvalidOption("last_event_id", "must be the id of an event, like 1764444444444-0") from None
    return given


def _ready(last_id: str) -> bytes:
    return frame("ready", b"{}", event_id=last_id, retry_ms=RECONNECT_MS)
