"""What a queue tells: events and histories, everywhere the same."""

import json
from typing import Any

import msgspec
import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.events import Event, id_key
from orchestrator.queue import Queue
from orchestrator.scripts import Report
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.invariants import check_history
from tests.lua.scene import Scene, drain, types

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def test_an_event_is_the_same_on_stream_history_live_channel_and_outbox(scene: Scene) -> None:
    live: list[Event] = []
    async with scene.client.pubsub(ignore_subscribe_messages=True) as channel:
        await channel.subscribe(scene.queue.keys.live)
        claim = await scene.active("a", attempts=2, notify=("added", "active", "progress", "milestone", "completed"))
        await scene.scripts.update_progress("a", claim.lease, Report(1, "", b'{"step":1}'))
        await scene.scripts.update_progress("a", claim.lease, Report(2, "denoised", b"[]"))
        await scene.finish(claim, content=b'{"ok":{}}')

        async def all_came() -> bool:
            if message := await channel.get_message(timeout=0.1):
                last_id, _, lines = message["data"].partition(b"\n")
                live.extend(Event.decode_together(last_id, lines))
            return len(live) == 6

        await wait_until(all_came)
    history = await scene.queue.get_history("a")
    stream = await scene.queue.events_after("0-0")
    assert stream is not None
    assert types(history) == ["added", "active", "progress", "milestone", "completed"]
    assert live == stream
    assert [event for event in stream if event.job == "a"] == history
    assert stream[-1].type == "drained"
    entries = await scene.client.xrange(scene.queue.keys.outbox)
    outbox = [Event.decode(fields[b"id"].decode(), fields[b"event"]) for _, fields in entries]
    assert outbox == history
    assert {fields[b"data"] for _, fields in entries} == {b'{"x":1}'}
    check_history(history)


async def test_what_was_trimmed_is_not_covered_by_the_entry_after_it(scene: Scene) -> None:
    await scene.queue.add_bulk([("paint",)] * 20)
    entries = [entry_id.decode() for entry_id, _ in await scene.client.xrange(scene.queue.keys.events)]
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert [len(entries), len(events)] == [3, 20]  # in eights
    await scene.client.xtrim(scene.queue.keys.events, minid=entries[1], approximate=False)
    assert entries[0] == events[7].id
    assert await scene.queue.events_after(entries[0]) is None
    assert await scene.queue.events_after(events[8].id) == events[9:]


async def test_after_an_event_of_somebody_else_all_ids_are_again_those_of_the_stream(scene: Scene) -> None:
    await scene.add("a")
    await scene.client.xadd(scene.queue.keys.events, {"e": '{"type":"foreign","at":1}'}, id="9999999999999-4294967295")
    await scene.add("b")  # whose id was made before that was known
    live: list[Event] = []
    async with scene.client.pubsub(ignore_subscribe_messages=True) as channel:
        await channel.subscribe(scene.queue.keys.live)
        while await scene.queue.count() and (claims := (await scene.claim()).claims):
            await scene.finish(claims[0])

        async def all_came() -> bool:
            if message := await channel.get_message(timeout=0.1):
                last_id, _, lines = message["data"].partition(b"\n")
                live.extend(Event.decode_together(last_id, lines))
            return types(live)[-1:] == ["drained"]

        await wait_until(all_came)
    stream = await scene.queue.events_after("0-0")
    assert stream is not None
    assert live == stream[-5:]
    assert [event.id for event in live] == [f"10000000000000-{number}" for number in range(5)]
    history = await scene.queue.get_history("b")
    assert [event.id for event in history[1:]] == [event.id for event in live if event.job == "b"]


async def test_names_are_told_as_they_are_however_many_there_are(scene: Scene) -> None:
    names = [f'no. {number} "\\ کار' for number in range(250)]
    for name in names:
        await scene.queue.add(name)
    stream = await scene.queue.events_after("0-0", 1000)
    assert [event.fields["name"] for event in stream or []] == names


async def test_the_outbox_takes_what_was_asked_for_and_gives_up_what_was_acknowledged(scene: Scene) -> None:
    await scene.completed("a", notify=("completed",))
    await scene.completed("b")
    await scene.change_meta(notify="failed")
    await scene.failed("c")
    await scene.scripts.create_group("relay")
    read = await scene.client.xreadgroup("relay", "me", {scene.queue.keys.outbox: ">"})
    entries = [(entry_id, json.loads(fields[b"event"])) for _, found in read for entry_id, fields in found]
    assert [(event["type"], event["job"]) for _, event in entries] == [("completed", "a"), ("failed", "c")]
    await scene.scripts.acknowledge("relay", [entries[0][0].decode()])
    assert await scene.client.xlen(scene.queue.keys.outbox) == 1
    assert (await scene.client.xpending(scene.queue.keys.outbox, "relay"))["pending"] == 1


async def test_a_large_result_is_left_out_of_the_event_but_kept_with_the_job(scene: Scene) -> None:
    claim = await scene.active("a")
    result = b'"%s"' % (b"x" * 100_000)
    await scene.finish(claim, content=result)
    history = await scene.queue.get_history("a")
    assert history[-1].fields["result_bytes"] == len(result)
    assert "result" not in history[-1].fields
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.result is not None
    assert bytes(job.result) == result


async def test_drained_is_told_once_for_each_emptying(scene: Scene) -> None:
    one = await scene.active("a")
    two = await scene.active("b")
    await scene.add("d", delay_ms=60_000)
    await scene.finish(one)
    await scene.finish(two)
    await scene.finish(two)
    await scene.finish(await scene.active("c"))
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert types(events).count("drained") == 2


async def test_events_after_an_id_go_on_without_a_gap_or_say_that_they_cannot(scene: Scene) -> None:
    queue = scene.queue
    assert await queue.events_after("0-0") == []
    for number in range(30):
        await scene.add(f"j{number}")
    whole = await queue.events_after("0-0")
    assert whole is not None
    assert [event.job for event in whole] == [f"j{number}" for number in range(30)]
    paged: list[Event] = whole[:1]
    while page := await queue.events_after(paged[-1].id, 7):
        assert len(page) <= 7
        paged += page
    assert paged == whole
    assert await queue.events_after(whole[-1].id) == []
    ms, _ = id_key(whole[-1].id)
    for uncovered in (f"{ms + 10**9}-0", "1-1", f"{ms}-999999"):
        assert await queue.events_after(uncovered) is None
    await scene.client.xtrim(queue.keys.events, maxlen=5, approximate=False)
    assert await queue.events_after(whole[3].id) is None
    assert await queue.events_after("0-0") is None
    assert await queue.events_after(whole[-5].id) == whole[-4:]
    for nonsense in ("", "x", "1", "-", "+", "1-x", "(1-1", f"{2**64}-0", "١-١"):
        with pytest.raises(ValueError, match="is no event id"):
            await queue.events_after(nonsense)


async def test_a_snapshot_is_of_one_instant_and_the_history_goes_on_after_it(scene: Scene) -> None:
    await scene.add("a")
    snapshot = await scene.queue.get_snapshot("a")
    assert snapshot is not None
    assert types(snapshot.history) == ["added"]
    assert snapshot.last_id == snapshot.history[-1].id
    await drain(scene)
    after = await scene.queue.get_history("a", snapshot.last_id)
    assert types(after) == ["active", "completed"]
    assert await scene.queue.get_snapshot("none") is None


async def test_a_waiting_jobs_history_is_told_without_being_stored(scene: Scene) -> None:
    await scene.add("a", delay_ms=30_000, priority=4)
    assert not await scene.client.exists(f"{scene.prefix}log:a")
    implied = await scene.queue.get_history("a")
    await scene.queue.promote("a")
    assert (await scene.queue.get_history("a"))[:1] == implied
    stream = await scene.queue.events_after("0-0")
    assert stream is not None
    assert stream[:1] == implied
    assert implied[0].fields == {"state": "delayed", "due_at": implied[0].at + 30_000, "name": "paint", "priority": 4}


async def test_the_progress_of_an_attempt_is_capped_but_its_end_is_told(scene: Scene) -> None:
    claim = await scene.active("a")
    for number in (1999, 2000, 2001):
        await scene.scripts.update_progress("a", claim.lease, Report(number, "", b"%d" % number))
    await scene.finish(claim)
    history = await scene.queue.get_history("a")
    assert [event.fields.get("progress") for event in history if event.type == "progress"] == [1999, 2000]
    assert history[-1].type == "completed"
    job = await scene.queue.get_job("a")
    assert job is not None
    assert job.progress == 2001


async def test_a_reader_who_came_before_the_first_event_misses_none(scene: Scene) -> None:
    await scene.queue.set_global_concurrency(1)  # the queue's life begins, without an event
    _, last_id = await scene.queue.get_recent()
    assert last_id != "0-0"
    await scene.add("a")
    await scene.add("b")
    events = await scene.queue.events_after(last_id)
    assert events is not None
    assert [event.job for event in events] == ["a", "b"]


async def test_raw_json_of_several_lines_is_told_in_one(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> Any:
        await job.checkpoint({"inside": msgspec.Raw(b'{\n"step": 1\n}')})
        return msgspec.Raw(b'{\n"text": "a\\nb"\n}')

    jobs = [await queue.add("paint", msgspec.Raw(b"[\n1]")) for _ in range(6)]
    async with Worker(queue.name, process, url, concurrency=6):
        for job in jobs:
            assert await queue.wait_until_finished(job.id) == {"text": "a\nb"}
    for job in jobs:
        history = await queue.get_history(job.id)
        assert types(history) == ["added", "active", "checkpoint", "completed"]
    events = await queue.events_after("0-0")
    assert events is not None
    assert "unreadable" not in types(events)
    assert len(events) == 4 * 6 + 1


async def test_a_reader_goes_on_after_any_event_of_an_entry_that_has_several(scene: Scene) -> None:
    await scene.queue.add_bulk([("paint", number) for number in range(20)])
    assert await scene.client.xlen(scene.queue.keys.events) == 3, "eight together"
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert len(events) == 20
    for place, event in enumerate(events):
        assert await scene.queue.events_after(event.id) == events[place + 1 :]
        assert await scene.queue.events_after(event.id, 3) == events[place + 1 : place + 4]


async def test_events_of_a_new_life_come_after_those_of_the_old_one(scene: Scene) -> None:
    """Also where the server's clock was set back meanwhile."""
    key, old_id = scene.queue.keys.events, "9999999999999-7"
    await scene.client.xadd(key, {"e": "of a life before"}, id=old_id)
    await scene.add("a")
    (added,) = await scene.queue.get_history("a")
    ((stream_id, _),) = await scene.client.xrange(key, min=f"({old_id}")
    assert added.id == stream_id.decode() == "9999999999999-8"
