"""Watching: every event once and in order, through drops, outages and restarts; or a clear word that it cannot be."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.events import Event, id_key
from orchestrator.hub import Hub, Lagged, Watch
from orchestrator.queue import Queue
from orchestrator.scripts import connect
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.faultproxy import FaultProxy
from tests.lua.scene import Scene
from tests.servers import Server

STEPS = 200


class Reader:
    """Reads a watch in the background."""

    def __init__(self, watch: Watch) -> None:
        self.events: list[Event] = []
        self.task = asyncio.create_task(self._read(watch))

    async def _read(self, watch: Watch) -> None:
        async for event in watch:
            self.events.append(event)

    async def until(self, last_type: str) -> list[Event]:
        """Wait for an event of a type; returns all so far."""
        await wait_until(lambda: self.task.done() or any(event.type == last_type for event in self.events))
        self.task.cancel()
        await asyncio.wait([self.task])
        return self.events


@pytest.fixture
async def hub(queue: Queue) -> AsyncIterator[Hub]:
    async with Hub(queue) as hub:
        yield hub


async def test_a_watch_sees_every_event_after_its_snapshot_once_and_in_order(hub: Hub, queue: Queue) -> None:
    scene = Scene(queue)
    await scene.add("a")
    async with hub.watch("a") as watch:
        snapshot = await queue.get_snapshot("a")
        assert snapshot is not None
        claim = (await scene.claim()).claims[0]
        watch.skip_to(snapshot.last_id)
        await scene.finish(claim)
        await scene.completed("other")
        events = await Reader(watch).until("completed")
    assert snapshot.history + events == await queue.get_history("a")


async def test_a_watch_of_the_queue_sees_all_jobs_and_the_queue_itself(hub: Hub, queue: Queue) -> None:
    scene = Scene(queue)
    async with hub.watch() as watch:
        await scene.completed("a")
        await scene.completed("b")
        await queue.remove("a")
        events = await Reader(watch).until("removed")
    assert events == await queue.events_after("0-0")


async def test_a_watcher_that_drops_20_times_in_one_job_has_seen_every_event_exactly_once(
    hub: Hub, queue: Queue, url: str
) -> None:
    """Each time it resumes as an SSE client does: from the last id it has, by the history and then live."""
    seen: list[Event] = []
    drops = 0

    async def process(job: ActiveJob) -> None:
        for step in range(STEPS):
            await wait_until(lambda least=step // 10 - 1: drops >= least)  # type: ignore[misc]
            await job.update_progress(step)

    async def resume() -> None:
        async with hub.watch(job.id) as watch:
            last_id = seen[-1].id if seen else None
            missed = await queue.get_history(job.id, last_id)
            seen.extend(missed)
            if seen:
                watch.skip_to(seen[-1].id)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    for _ in range(7):
                        seen.append(await anext(watch))  # noqa: PERF401

    job = await queue.add("paint")
    async with Worker(queue.name, process, url):
        while not seen or seen[-1].type != "completed":
            await resume()
            drops += 1
    assert drops >= 20
    assert seen == await queue.get_history(job.id)
    assert len({event.id for event in seen}) == len(seen) == STEPS + 3


async def test_a_gap_is_filled_after_an_outage(queue: Queue, server: Server, runtime_folder: Path) -> None:
    scene = Scene(queue)
    async with FaultProxy(runtime_folder / "hub.sock", server.socket) as proxy:
        client = connect(proxy.url)
        async with Hub(Queue(queue.name, client)) as hub, hub.watch() as watch:
            reader = Reader(watch)
            for number in range(5):
                await scene.completed(f"a{number}")
                proxy.cut()
                await scene.completed(f"b{number}")
                await scene.completed(f"c{number}")
            await scene.canceled("last")
            events = await reader.until("canceled")
        await client.aclose()
    assert events == await queue.events_after("0-0")


async def test_a_hub_that_was_there_before_the_queue_misses_nothing(
    queue: Queue, server: Server, runtime_folder: Path
) -> None:
    scene = Scene(queue)
    async with FaultProxy(runtime_folder / "hub.sock", server.socket) as proxy:
        client = connect(proxy.url)
        async with Hub(Queue(queue.name, client)) as hub, hub.watch() as watch:
            proxy.cut()
            await scene.completed("first")
            events = await Reader(watch).until("completed")
        await client.aclose()
    assert [event.type for event in events][:3] == ["added", "active", "completed"]


async def test_a_gap_that_cannot_be_filled_ends_the_watch(queue: Queue, server: Server, runtime_folder: Path) -> None:
    scene = Scene(queue)
    await scene.completed("before")
    async with FaultProxy(runtime_folder / "hub.sock", server.socket) as proxy:
        client = connect(proxy.url)
        async with Hub(Queue(queue.name, client)) as hub:
            async with hub.watch() as watch:
                proxy.cut()
                await scene.completed("a")
                await queue.client.xtrim(queue.keys.events, maxlen=1, approximate=False)
                with pytest.raises(Lagged):
                    while True:
                        await anext(watch)
            async with hub.watch() as watch:
                await scene.canceled("b")
                assert (await Reader(watch).until("canceled"))[-1].job == "b"
        await client.aclose()


async def test_a_watcher_that_falls_behind_gets_what_it_has_room_for_and_is_told(hub: Hub, queue: Queue) -> None:
    scene = Scene(queue)
    async with hub.watch(maxsize=3) as slow, hub.watch() as quick:
        for number in range(5):
            await scene.add(f"j{number}")
        await scene.canceled("end")
        assert len(await Reader(quick).until("canceled")) == 7
        assert [(await anext(slow)).job for _ in range(3)] == ["j0", "j1", "j2"]
        with pytest.raises(Lagged):
            await anext(slow)


async def test_words_on_the_channel_that_nobody_understands_do_not_end_the_hub(hub: Hub, queue: Queue) -> None:
    scene = Scene(queue)
    async with hub.watch() as watch:
        for words in (b"", b"x", b"1-1\n{", b"\xff\xff", b'1-1\n{"type":5}', b"1-1\n\n"):
            await queue.client.publish(queue.keys.live, words)
        await scene.canceled("a")
        events = await Reader(watch).until("canceled")
    assert events == await queue.events_after("0-0")


async def test_watches_end_with_their_hub(queue: Queue) -> None:
    async with Hub(queue) as hub:
        async with hub.watch() as watch:
            waiting = asyncio.create_task(anext(watch))
            await asyncio.wait([waiting], timeout=0.05)
            await hub.__aexit__(None, None, None)
            with pytest.raises(Lagged):
                await waiting


@pytest.fixture
def empty_server(runtime_folder: Path) -> Iterator[Server]:
    """A server without persistence, to be killed."""
    server = Server("valkey", runtime_folder / "forgetful")
    server.start()
    yield server
    server.stop()


async def test_a_server_that_comes_back_empty_ends_the_watches_and_nothing_else(empty_server: Server) -> None:
    async def process(job: ActiveJob) -> str:
        return "done"

    client = connect(empty_server.url)
    queue = Queue("lost", client)
    scene = Scene(queue)
    async with Hub(queue) as hub, Worker(queue.name, process, empty_server.url) as worker:
        async with hub.watch() as watch:
            await scene.add("a")
            await Reader(watch).until("completed")
        async with hub.watch() as watch:
            empty_server.kill()
            empty_server.start()
            assert await queue.get_job("a") is None
            with pytest.raises(Lagged):
                while True:
                    await anext(watch)
        async with hub.watch() as watch:
            job = await queue.add("paint")
            events = await Reader(watch).until("completed")
        assert [event.type for event in events][:3] == ["added", "active", "completed"]
        assert await queue.get_history(job.id) == events[:3]
        assert worker.name
    await client.aclose()


def test_ids_compare_by_time_and_number() -> None:
    assert id_key("9-10") > id_key("9-9") > id_key("8-99")
