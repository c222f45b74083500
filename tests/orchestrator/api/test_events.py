"""Watching: snapshots, exact resumption, and what becomes of slow, lost and stopped streams."""

import asyncio
import random

import httpx
import pytest

from orchestrator.api.context import Context
from orchestrator.api.server import Server
from orchestrator.events import id_key
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from tests.conftest import wait_until
from tests.orchestrator.api.hand import Hand
from tests.orchestrator.api.sse import Message, watching
from tests.orchestrator.api.test_generations import create


def context_of(live: Server) -> Context:
    context: Context = live.config.app.state.context  # type: ignore[union-attr]
    return context


async def test_a_new_watcher_gets_a_snapshot_then_what_happens(
    web: httpx.AsyncClient, live: Server, queue: Queue
) -> None:
    resource = await create(web)
    async with watching(web, resource["urls"]["events"]) as source:
        snapshot, ready = await source.take(2)
        assert (snapshot.event, snapshot.id, snapshot.data) == ("snapshot", None, {"generation": resource})
        assert ready.event == "ready"
        assert ready.id is not None
        hand = await Hand.claim(queue)
        await hand.progress(1)
        await hand.preview(1, b"webp")
        await hand.complete(context_of(live).storage)
        active, progress, preview, completed, end = await source.take(5)
    assert [active.event, progress.event, preview.event, completed.event] == [
        "active",
        "progress",
        "milestone",
        "completed",
    ]
    assert (
        active.data | {"id": active.id, "type": "active", "job": resource["id"], "attempt": 1, "run": 1} == active.data
    )
    assert progress.data["progress"]["step"] == 1
    assert preview.data["url"] == f"{resource['urls']['self']}/preview?number=1"
    assert completed.data["images"] == (await web.get(resource["urls"]["self"])).json()["images"]
    assert completed.data["images"][0]["url"] == f"{resource['urls']['self']}/images/0"
    assert (end.event, end.id) == ("end", None)
    assert end.retry_ms is not None
    assert end.retry_ms > 3_600_000


async def test_a_snapshot_shows_the_newest_preview(web: httpx.AsyncClient, queue: Queue) -> None:
    resource = await create(web)
    hand = await Hand.claim(queue)
    await hand.preview(1, b"one")
    await hand.preview(2, b"two")
    url = f"{resource['urls']['self']}/preview?number=2"
    for path in (resource["urls"]["events"], "/v1/events"):
        async with watching(web, path) as source:
            (snapshot,) = await source.take(1)
        assert snapshot.data["generation"]["preview"] == {"number": 2, "step": 10, "url": url}
    picture = await web.get(url)
    assert (picture.content, picture.headers["content-type"]) == (b"two", "image/webp")
    assert picture.headers["cache-control"] == "no-store"


async def test_a_finished_generation_is_told_whole_and_the_stream_ends(
    web: httpx.AsyncClient, live: Server, queue: Queue
) -> None:
    resource = await create(web)
    async with watching(web, resource["urls"]["events"]) as source:
        first_id = (await source.take(2))[1].last_id
    hand = await Hand.claim(queue)
    await hand.complete(context_of(live).storage)
    async with watching(web, resource["urls"]["events"]) as source:
        assert [message.event async for message in source] == ["snapshot", "ready", "end"]
    async with watching(web, resource["urls"]["events"], first_id) as source:
        assert [message.event async for message in source] == ["active", "completed", "end"]
        last_id = source.last_id
    async with watching(web, resource["urls"]["events"], last_id) as source:
        assert [message.event async for message in source] == ["end"]
    async with watching(web, f"{resource['urls']['events']}?last_event_id={first_id}") as source:
        assert [message.event async for message in source] == ["active", "completed", "end"]


async def test_a_watcher_that_drops_twenty_times_has_every_event_once(
    web: httpx.AsyncClient, live: Server, queue: Queue
) -> None:
    chance = random.Random(20)
    resource = await create(web)
    received: list[Message] = []
    async with watching(web, resource["urls"]["events"]) as source:
        last_id = (await source.take(2))[1].last_id
    hand = await Hand.claim(queue)
    is_watched = asyncio.Event()

    async def paint() -> None:
        step = 0
        while not is_watched.is_set():
            step += 1
            await hand.progress(step, 100_000)
        await hand.complete(context_of(live).storage)

    painting = asyncio.create_task(paint())
    for _ in range(20):
        async with watching(web, resource["urls"]["events"], last_id) as source:
            received += await source.take(chance.randint(1, 12))  # what comes beyond them is lost with the connection
            last_id = source.last_id
    is_watched.set()
    async with watching(web, resource["urls"]["events"], last_id) as source:
        received += await source.until("end")
    await painting
    history = await queue.get_history(resource["id"])
    assert [message.id for message in received[:-1]] == [event.id for event in history[1:]]
    assert [message.data["seq"] for message in received[:-1]] == list(range(2, len(history) + 1))
    assert len(history) > 40


async def test_the_history_is_also_json(web: httpx.AsyncClient, live: Server, queue: Queue) -> None:
    resource = await create(web)
    hand = await Hand.claim(queue)
    await hand.milestone("model_loaded")
    await hand.complete(context_of(live).storage)
    body = (await web.get(resource["urls"]["events"])).json()
    assert [event["type"] for event in body["data"]] == ["added", "active", "milestone", "completed"]
    assert body["data"][-1]["images"][0]["index"] == 0
    assert id_key(body["last_id"]) >= id_key(body["data"][-1]["id"])
    after = body["data"][1]["id"]
    rest = (await web.get(resource["urls"]["events"], params={"last_event_id": after})).json()
    assert rest["data"] == body["data"][2:]


async def test_an_id_from_the_future_gets_a_new_snapshot(web: httpx.AsyncClient) -> None:
    resource = await create(web)
    for path in (resource["urls"]["events"], "/v1/events"):
        async with watching(web, path, "99999999999999-0") as source:
            assert [message.event for message in await source.take(3)] == ["reset", "snapshot", "ready"]


@pytest.mark.parametrize("last_id", ["1", "-", "a-b", "1-2-3", "0-0'", "9" * 40 + "-0"])
async def test_what_is_no_id_is_refused(api: httpx.AsyncClient, last_id: str) -> None:
    resource = await create(api)
    for path in (resource["urls"]["events"], "/v1/events"):
        response = await api.get(path, headers={"Last-Event-ID": last_id})
        assert response.status_code == 422
        assert response.json()["field"] == "last_event_id"


async def test_a_removed_generation_ends_its_stream(web: httpx.AsyncClient) -> None:
    resource = await create(web)
    async with watching(web, resource["urls"]["events"]) as source:
        await source.take(2)
        assert (await web.delete(resource["urls"]["self"])).status_code == 204
        assert [message.event async for message in source] == ["removed", "end"]


async def test_the_page_sees_all_generations_over_one_connection(
    web: httpx.AsyncClient, live: Server, queue: Queue
) -> None:
    old = [await create(web) for _ in range(3)]
    await queue.add("resize", {}, JobOptions(id="not-a-generation"))
    async with watching(web, "/v1/events") as source:
        messages = await source.until("ready")
        assert [message.data["generation"]["id"] for message in messages[:-1]] == [one["id"] for one in old]
        assert all(message.id is None for message in messages[:-1])
        new = await create(web)
        hand = await Hand.claim(queue)
        await hand.complete(context_of(live).storage)
        assert (await web.delete(old[1]["urls"]["self"])).status_code == 204
        added, active, completed, removed = await source.take(4)
    assert (added.event, added.data["job"]) == ("added", new["id"])
    assert (active.event, completed.event) == ("active", "completed")
    assert completed.data["images"]
    assert (removed.event, removed.data["job"]) == ("removed", old[1]["id"])


async def test_the_page_resumes_where_it_left_off(web: httpx.AsyncClient, live: Server, queue: Queue) -> None:
    await create(web)
    async with watching(web, "/v1/events") as source:
        last_id = (await source.until("ready"))[-1].last_id
    seen: list[str] = []
    hand = await Hand.claim(queue)
    for step in range(1, 40):
        await hand.progress(step)
        if step % 10 == 0:
            async with watching(web, "/v1/events", last_id) as source:
                messages = await source.take(7)
                seen += [str(message.id) for message in messages]
                last_id = source.last_id
    await hand.complete(context_of(live).storage)
    async with watching(web, "/v1/events", last_id) as source:
        seen += [str(message.id) for message in await source.until("completed")]
    assert seen == [event.id for event in await queue.get_history(hand.job.id)][1:]


async def test_a_page_whose_past_is_trimmed_starts_anew(web: httpx.AsyncClient, queue: Queue) -> None:
    await create(web)
    async with watching(web, "/v1/events") as source:
        last_id = (await source.until("ready"))[-1].last_id
    for _ in range(3):
        await create(web)
    await queue.client.xtrim(queue.keys.events, maxlen=1, approximate=False)
    async with watching(web, "/v1/events", last_id) as source:
        messages = await source.until("ready")
    assert [message.event for message in messages] == ["reset", "snapshot", "snapshot", "snapshot", "snapshot", "ready"]


async def test_a_page_far_behind_is_caught_up_page_by_page(
    web: httpx.AsyncClient, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.api.events.PAGE", 10)
    resource = await create(web)
    async with watching(web, "/v1/events") as source:
        last_id = (await source.until("ready"))[-1].last_id
    for number in range(40):
        await queue.change_priority(resource["id"], 1 + number)
    async with watching(web, "/v1/events", last_id) as source:
        messages = await source.take(40)
        await queue.change_priority(resource["id"], 777)
        messages += await source.take(1)
    assert [message.data["priority"] for message in messages] == [*range(1, 41), 777]


async def test_a_lost_subscription_costs_a_watcher_nothing(
    web: httpx.AsyncClient, live: Server, queue: Queue, client: Client
) -> None:
    resource = await create(web)
    hand = await Hand.claim(queue)
    async with watching(web, resource["urls"]["events"]) as source:
        await source.take(2)
        for step in range(1, 31):
            await hand.progress(step)
            if step % 10 == 0:
                await client.client_kill_filter(_type="pubsub")
        await hand.complete(context_of(live).storage)
        messages = await source.until("end")
    assert [message.id for message in messages[:-1]] == [event.id for event in await queue.get_history(hand.job.id)][2:]


async def test_what_other_processors_tell_does_not_end_the_pages_stream(
    web: httpx.AsyncClient, live: Server, queue: Queue
) -> None:
    async with watching(web, "/v1/events") as source:
        await source.until("ready")
        await queue.add("resize", {"x": 1}, JobOptions(id="resize-1"))
        hand = await Hand.claim(queue)
        for data in (None, [1], {"number": "one"}, {"number": 1}):
            await hand.milestone("preview_ready", data)
        await hand.finish("completed", b'{"images": 7}')
        *milestones, completed = (await source.take(7))[2:]
        assert ["url" in message.data for message in milestones] == [False, False, False, True]
        assert completed.data["result"] == {"images": 7}
        assert "images" not in completed.data


async def test_head_of_a_stream_ends_at_once(web: httpx.AsyncClient) -> None:
    response = await web.head("/v1/events")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"].startswith("text/event-stream")


async def test_idle_streams_have_heartbeats(web: httpx.AsyncClient, live: Server) -> None:
    context_of(live).streams.heartbeat_s = 0.05
    resource = await create(web)
    async with watching(web, resource["urls"]["events"]) as source:
        await source.take(2)
        await source.comment()


async def test_nothing_is_left_of_clients_that_went_away(web: httpx.AsyncClient, live: Server) -> None:
    context = context_of(live)
    resource = await create(web)
    for _ in range(5):
        async with watching(web, resource["urls"]["events"]) as one, watching(web, "/v1/events") as other:
            await one.take(2)
            await other.take(2)
            assert len(context.streams) == 2
        await wait_until(lambda: len(context.streams) == 0 and not context.hub._watches)
    await wait_until(lambda: len(live.server_state.tasks) == 0)


async def test_a_stream_that_lags_is_closed_and_resumes(
    web: httpx.AsyncClient, live: Server, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.api.context.WATCH_EVENTS", 3)
    resource = await create(web)
    hand = await Hand.claim(queue)
    async with watching(web, resource["urls"]["events"]) as source:
        last_id = (await source.take(2))[-1].last_id
        event = (await queue.get_history(resource["id"]))[-1]
        for watch in context_of(live).hub._watches[resource["id"]]:
            for _ in range(5):  # as if nobody had read for five events
                watch._offer(event)
        await hand.progress(1)
        rest = [message async for message in source]
        last_id = source.last_id
        assert "end" not in [message.event for message in rest]
    await hand.complete(context_of(live).storage)
    async with watching(web, resource["urls"]["events"], last_id) as source:
        rest += [message async for message in source]
    ids = [message.id for message in rest if message.id]
    assert ids == [event.id for event in await queue.get_history(resource["id"])][2:]


async def test_streams_share_the_hubs_one_subscription(
    web: httpx.AsyncClient, live: Server, client: Client, queue: Queue
) -> None:
    await create(web)
    async with watching(web, "/v1/events") as one, watching(web, "/v1/events") as other:
        await one.until("ready")
        await other.until("ready")
        assert await client.pubsub_numsub(queue.keys.live) == [(queue.keys.live.encode(), 1)]


async def test_the_text_of_an_event_is_made_once_and_kept_within_bounds(
    web: httpx.AsyncClient, live: Server, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.api.events.CACHED_EVENTS", 4)
    resource = await create(web)
    hand = await Hand.claim(queue)
    async with watching(web, resource["urls"]["events"]) as source:
        await source.take(2)
        for step in range(10):
            await hand.progress(step)
        messages = await source.take(10)
    assert [message.data["progress"].get("step", 0) for message in messages] == list(range(10))
