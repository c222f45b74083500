"""Workers say that they are there; those that say it no longer vanish."""

import asyncio
import os
import socket
from typing import Any

import msgspec
import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.errors import InvalidOption, StoreUnavailable
from orchestrator.presence import WorkerInfo
from orchestrator.queue import Queue
from orchestrator.worker import Worker, registry
from tests.conftest import wait_until
from tests.orchestrator.running import ended, until_active


async def one_worker(queue: Queue) -> WorkerInfo:
    """The worker, once it is there."""

    async def is_there() -> bool:
        return await queue.get_workers_count() == 1

    await wait_until(is_there)
    (worker,) = await queue.get_workers()
    return worker


async def nothing(job: ActiveJob) -> None: ...


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
async def test_a_worker_is_listed_with_what_it_is_and_does_until_it_stops(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BEAT_S", 0.05)
    released = asyncio.Event()

    async def wait(job: ActiveJob) -> None:
        await released.wait()

    job = await queue.add("paint")
    info = {"device": "cuda:0", "model": "kargah/shapes", "vram_bytes": 8 << 30}
    async with Worker(queue.name, wait, url, concurrency=3, name="me", info=info):
        await until_active(queue)

        async def tells() -> bool:
            return (await one_worker(queue)).job_ids == (job.id,)

        await wait_until(tells)
        worker = await one_worker(queue)
        assert (worker.name, worker.queue, worker.concurrency, worker.active) == ("me", queue.name, 3, 1)
        assert (worker.host, worker.pid, worker.info) == (socket.gethostname(), os.getpid(), info)
        assert worker.started_at <= worker.last_seen_at

        async def beats() -> bool:
            later = await one_worker(queue)
            return later.last_seen_at > worker.last_seen_at and later.started_at == worker.started_at

        await wait_until(beats)
        released.set()
        await ended(queue, job.id)
    assert await queue.get_workers() == []
    assert not await queue.client.exists(f"{queue.keys.prefix}worker:{worker.id}")


async def test_a_worker_that_is_not_heard_of_vanishes(queue: Queue) -> None:
    record = b'{"id":"%s","name":"n","queue":"q","concurrency":1}'
    for name in (b"alive", b"dead"):
        await queue.scripts.heartbeat(name.decode(), record % name)
    await queue.client.zincrby(f"{queue.keys.prefix}workers", -16_000, "dead")
    assert [worker.id for worker in await queue.get_workers()] == ["alive"]
    assert await queue.get_workers_count() == 1
    assert await queue.scripts.heartbeat("alive", record % b"alive") == 1
    assert await queue.client.zrange(f"{queue.keys.prefix}workers", 0, -1) == [b"alive"]


async def test_workers_come_in_pages(queue: Queue) -> None:
    for number in range(5):
        record = b'{"id":"%d","name":"n","queue":"q","concurrency":1}' % number
        await queue.scripts.heartbeat(str(number), record)
    pages = [*await queue.get_workers(0, 3), *await queue.get_workers(3, 3)]
    assert {worker.id for worker in pages} == set("01234")
    assert await queue.get_workers_count() == 5
    with pytest.raises(InvalidOption, match="count"):
        await queue.get_workers(0, 101)


async def test_what_a_function_tells_is_asked_for_with_each_heartbeat(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BEAT_S", 0.02)
    free = iter(range(1000, 0, -1))
    async with Worker(queue.name, nothing, url, info=lambda: {"free_bytes": next(free)}):

        async def sinks() -> bool:
            workers = await queue.get_workers()
            return bool(workers) and workers[0].info["free_bytes"] < 995

        await wait_until(sinks)


async def test_a_function_that_breaks_later_does_not_stop_the_worker(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BEAT_S", 0.02)
    calls = 0

    def tell() -> dict[str, int]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ZeroDivisionError
        return {} if calls != 3 else {"x": object()}  # type: ignore[dict-item]

    async with Worker(queue.name, nothing, url, info=tell):
        await wait_until(lambda: calls > 5)
        await ended(queue, (await queue.add("paint")).id)


@pytest.mark.parametrize("info", [{"x": float("nan")}, {"x": "y" * 3000}, ["x"], "text"], ids=repr)
async def test_info_that_cannot_be_stored_is_refused_at_once(url: str, queue_name: str, info: Any) -> None:
    with pytest.raises(InvalidOption, match="info"):
        Worker(queue_name, nothing, url, info=info)


async def test_an_outage_is_waited_out(queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "BEAT_S", 0.02)
    worker = Worker(queue.name, nothing, url)
    real, failures = worker.queue.scripts.heartbeat, 0

    async def fail(worker_id: str, record: bytes) -> int:
        nonlocal failures
        failures += 1
        if failures < 3:
            raise StoreUnavailable("away")
        return await real(worker_id, record)

    monkeypatch.setattr(worker.queue.scripts, "heartbeat", fail)
    async with worker:
        await one_worker(queue)
    assert failures > 3


async def test_a_worker_stops_in_time_when_its_last_heartbeat_is_not_answered(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "LEAVE_S", 0.05)
    worker = Worker(queue.name, nothing, url)

    async def never(worker_id: str, record: bytes) -> int:
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(worker.queue.scripts, "heartbeat", never)
    async with worker:
        await ended(queue, (await queue.add("paint")).id)


def test_a_record_of_a_newer_version_can_be_read() -> None:
    from orchestrator.presence import read_worker

    record = msgspec.json.encode({"id": "w", "name": "n", "queue": "q", "concurrency": 1, "mood": "good"})
    worker = read_worker(b"5", b"3 " + record)
    assert (worker.id, worker.started_at, worker.last_seen_at) == ("w", 3, 5)
