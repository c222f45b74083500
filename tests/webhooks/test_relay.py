import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orchestrator.errors import StoreUnavailable
from orchestrator.job import JobOptions
from orchestrator.keys import new_job_id
from orchestrator.scripts import connect
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.servers import Server
from tests.webhooks.receiver import Receiver
from tests.webhooks.rig import ALL, URL, Rig, counts, drain, generation, progress
from webhooks.relay import CONSUMER, GROUP, delivery_id

# ── from event to delivery ───────────────────────────────────────────────────────────────────────────


async def test_an_event_becomes_one_delivery_job_and_leaves_the_outbox(rig: Rig) -> None:
    job_id = await rig.canceled_job()
    assert await drain(rig.relay()) == 1
    [delivery] = await rig.queued()
    event = (await rig.source.get_history(job_id))[-1]
    assert (delivery.queue, delivery.job, delivery.event) == (rig.source.name, job_id, event.id)
    assert (delivery.type, delivery.url) == ("generation.canceled", URL)
    assert delivery.message == f"msg_{job_id}_{event.id}"
    body = msgspec.json.decode(delivery.body)
    assert body["data"].items() >= {"id": job_id, "status": "canceled", "seq": event.seq}.items()
    assert body["data"]["metadata"] == {"order": 5}
    job = await rig.deliveries.get_job(delivery_id(rig.source.name, event.id, delivery.subscription))
    assert job is not None
    assert (job.header.attempts, job.header.complete_age_s, job.header.fail_age_s) == (4, 86_400, 30 * 86_400)
    assert job.header.notify == ()
    assert job.header.max_stalled == 100  # lost relays are no fault of the message
    assert await rig.is_idle()


async def test_an_event_nobody_wants_only_leaves_the_outbox(rig: Rig) -> None:
    await rig.canceled_job(events=("completed",))
    assert await drain(rig.relay()) == 1
    assert await rig.queued() == []
    assert await rig.is_idle()


async def test_deliveries_are_queued_in_the_order_of_the_events(rig: Rig) -> None:
    jobs = [await rig.canceled_job() for _ in range(20)]
    await drain(rig.relay())
    assert [delivery.job for delivery in await rig.queued()] == jobs


async def test_two_relays_share_the_work_and_nothing_is_queued_twice(rig: Rig) -> None:
    jobs = [await rig.canceled_job() for _ in range(60)]
    done = await asyncio.gather(drain(rig.relay()), drain(rig.relay()))
    assert sum(done) == 60
    assert sorted(delivery.job for delivery in await rig.queued()) == sorted(jobs)
    assert await rig.is_idle()


async def test_a_failed_generation_tells_how_far_it_came(rig: Rig) -> None:
    async def fail(job: Any) -> None:
        await job.update_progress({"phase": "denoising", "step": 3, "steps": 4, "fraction": 0.7})
        raise RuntimeError("no paint")

    options = JobOptions(id=new_job_id(), notify=("failed",))
    await rig.source.add("generation", generation(URL, ("failed",)), options)
    async with Worker(rig.source.name, fail, rig.client):
        await wait_until(lambda: _outbox_has(rig, 1))
    await drain(rig.relay())
    [delivery] = await rig.queued()
    content = msgspec.json.decode(delivery.body)["data"]
    assert content.items() >= {"status": "failed", "progress": 0.7, "step": 3}.items()
    assert content["error"]["message"] == "no paint"


async def test_what_can_never_be_told_is_dropped_and_holds_nothing_up(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    bad: list[dict[Any, Any]] = [
        {"nothing": "here"},
        {"id": "1-0", "event": "{", "job": "a", "data": "{}"},
        {"id": "1-0", "event": "[]", "job": "a", "data": msgspec.json.encode(generation(URL, ALL))},
        {"id": "1-0", "event": progress("1-0").encode(), "job": "job1", "data": '{"other":"payload"}'},
        {
            "id": "1-0",
            "event": b'{"type":"failed","job":"a","at":1}',
            "job": "a",
            "data": msgspec.json.encode(generation(URL, ALL)),
        },
        {
            "id": "1-0",
            "event": b'{"type":"active","job":"a","at":9e99}',
            "job": "a",
            "data": msgspec.json.encode(generation(URL, ALL)),
        },
    ]
    for fields in bad:
        await rig.client.xadd(rig.source.keys.outbox, fields)
    await rig.canceled_job()
    assert await drain(rig.relay()) == len(bad) + 1
    assert len(await rig.queued()) == 1
    assert [record.getMessage() for record in caplog.records].count("relay.dropped") == len(bad)
    assert await rig.is_idle()


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────


async def test_a_relay_killed_between_fan_out_and_acknowledgement_leaves_one_delivery(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.canceled_job()
    killed = rig.relay()
    acknowledge = rig.source.scripts.acknowledge

    async def die(*_: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(rig.source.scripts, "acknowledge", die)
    with pytest.raises(asyncio.CancelledError):
        await killed.step()
    assert len(await rig.queued()) == 1
    assert not await rig.is_idle()

    monkeypatch.setattr(rig.source.scripts, "acknowledge", acknowledge)
    async with Receiver() as receiver:
        assert await rig.relay(claim_idle_ms=60_000).step() == 0  # it might still be at work
        assert await rig.relay(claim_idle_ms=0).step() == 1
        assert len(await rig.queued()) == 1
        assert await rig.is_idle()
        assert receiver.accepted == 0


async def test_a_relay_killed_before_its_fan_out_is_followed_by_another(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await rig.canceled_job()
    read = await rig.client.xreadgroup(GROUP, CONSUMER, {rig.source.keys.outbox: ">"})  # and then it was gone
    assert read
    assert await rig.relay(claim_idle_ms=0).step() == 3
    assert len(await rig.queued()) == 3
    assert await rig.is_idle()


async def test_a_batch_that_redis_refused_is_the_first_thing_of_the_next_step(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.canceled_job()
    relay = rig.relay()
    with monkeypatch.context() as patch:
        patch.setattr(rig.deliveries, "fan_out", _refuse)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await relay.step()
    assert await rig.queued() == []
    assert await relay.step() == 1
    assert len(await rig.queued()) == 1
    assert await rig.is_idle()


@pytest.mark.parametrize("lost", ["group", "outbox"])
async def test_a_lost_group_is_made_again_and_what_is_still_there_is_delivered(rig: Rig, lost: str) -> None:
    relay = rig.relay()
    await rig.canceled_job()
    await drain(relay)
    if lost == "group":
        await rig.client.xgroup_destroy(rig.source.keys.outbox, GROUP)
    else:
        await rig.client.delete(rig.source.keys.outbox)
    await rig.canceled_job()
    assert await relay.step() == 0  # sees that it is lost
    assert await drain(relay) == 1
    assert len(await rig.queued()) == 2
    assert await rig.is_idle()


async def test_the_same_entry_again_within_a_day_adds_nothing(rig: Rig) -> None:
    event = progress("7-0")
    async with Receiver() as receiver, rig.deliverer():
        for _ in range(3):
            await rig.put(event, receiver.url)
        assert await drain(rig.relay()) == 3
        await wait_until(lambda: counts(rig, completed=1))
        await rig.put(event, receiver.url)
        assert await drain(rig.relay()) == 1
    assert receiver.accepted == 1


# ── running ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_relay_runs_until_it_is_stopped(rig: Rig) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(rig.relay().run(stop))
    await rig.canceled_job()
    await wait_until(lambda: counts(rig, waiting=1))
    stop.set()
    async with asyncio.timeout(10):
        await running


async def test_an_unexpected_error_ends_the_run_and_is_seen(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(rig.deliveries, "fan_out", broken)
    await rig.canceled_job()
    with pytest.raises(LookupError):
        await rig.relay().run(asyncio.Event())


async def test_a_relay_outlives_a_redis_that_comes_back_empty(runtime_folder: Path, queue_name: str) -> None:
    server = Server("valkey", runtime_folder / queue_name)
    server.start()
    client = connect(server.url)
    rig = Rig(client, server.url, queue_name)
    stop = asyncio.Event()
    running = asyncio.create_task(rig.relay().run(stop))
    try:
        await rig.canceled_job()
        await wait_until(lambda: counts(rig, waiting=1))
        await asyncio.to_thread(server.stop)
        assert not running.done()
        await asyncio.to_thread(server.start)
        assert await rig.queued() == []
        await rig.canceled_job()
        await wait_until(lambda: counts(rig, waiting=1))
        await wait_until(rig.is_idle)
    finally:
        stop.set()
        await running
        await client.aclose()
        await asyncio.to_thread(server.stop)


async def test_on_a_full_server_a_relay_goes_on(runtime_folder: Path, queue_name: str) -> None:
    server = Server("valkey", runtime_folder / queue_name)
    await asyncio.to_thread(server.start)
    client = connect(server.url)
    rig = Rig(client, server.url, queue_name)
    try:
        await rig.canceled_job()
        await client.config_set("maxmemory", "1")
        relay = rig.relay()
        with pytest.raises(StoreUnavailable):
            await rig.source.add("generation", None)
        assert await relay.step() == 0  # makes its group, full or not
        assert await relay.step() == 1
        assert len(await rig.queued()) == 1
        await relay.close()
    finally:
        await client.aclose()
        await asyncio.to_thread(server.stop)


async def test_a_relay_without_redis_can_be_stopped(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/nobody.sock"
    client = connect(url)
    stop = asyncio.Event()
    running = asyncio.create_task(Rig(client, url, "q").relay().run(stop))
    await asyncio.sleep(0)
    stop.set()
    async with asyncio.timeout(10):
        await running
    await client.aclose()


# ── helpers ──────────────────────────────────────────────────────────────────────────────────────────


async def _refuse(*_: Any) -> None:
    raise StoreUnavailable("Redis is full")


async def _outbox_has(rig: Rig, entries: int) -> bool:
    return await rig.client.xlen(rig.source.keys.outbox) == entries
