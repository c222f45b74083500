"""Faults that a review found, each as a story: they must not come back."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.errors import InvalidOption, OutOfMemory
from orchestrator.hub import Hub
from orchestrator.job import JobOptions, KeepJobs, encode_json
from orchestrator.queue import Queue
from orchestrator.scripts import Finish, Report, connect
from orchestrator.worker import Worker
from tests.faultproxy import FaultProxy
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene
from tests.orchestrator.running import run_one
from tests.servers import Server


async def test_a_late_copy_of_a_lanes_call_claims_nothing(scene: Scene) -> None:
    claim = await scene.active("a")
    finish = Finish("a", claim.lease, "completed", b"1")
    for token in ("7-x", "8-y"):
        await scene.scripts.move_to_finished(token, "w:0", "worker", LEASE_MS, INTERVAL_MS, 1, [finish])
        finish = Finish("a", "gone", "completed", b"1")
    await scene.add("b")
    late = await scene.scripts.move_to_finished("7-x", "w:0", "worker", LEASE_MS, INTERVAL_MS, 1, [finish])
    assert (late.outcomes, late.claims) == (["LEASE_LOST"], [])
    late = await scene.scripts.move_to_active("6-w", "w:0", "worker", LEASE_MS, INTERVAL_MS, 1)
    assert late.claims == []
    newest = await scene.scripts.move_to_active("9-z", "w:0", "worker", LEASE_MS, INTERVAL_MS, 1)
    assert [claim.job.id for claim in newest.claims] == ["b"]


async def test_the_next_attempt_knows_why_the_last_one_failed(queue: Queue, url: str) -> None:
    seen: list[str | None] = []

    async def process(job: ActiveJob) -> None:
        seen.append(job.job.error.kind if job.job.error else None)
        if job.attempt == 1:
            raise OutOfMemory("too little")

    await run_one(queue, url, process, JobOptions(attempts=2))
    assert seen == [None, "out_of_memory"]


async def test_milestones_and_other_attempts_are_told_however_much_was_told_before(scene: Scene) -> None:
    claim = await scene.active("a", attempts=2)
    await scene.scripts.update_progress("a", claim.lease, Report(2001, "", b"1"))
    await scene.scripts.update_progress("a", claim.lease, Report(2002, "denoised", b"1"))
    await scene.finish(claim, "failed", b'{"kind":"transient","message":"","details":{}}', 0)
    again = (await scene.claim()).claims[0]
    await scene.scripts.update_progress("a", again.lease, Report(1, "", b"2"))
    told = [event.type for event in await scene.queue.get_history("a")]
    assert told == ["added", "active", "milestone", "waiting", "active", "progress"]


async def test_the_expiry_of_every_record_is_told(scene: Scene) -> None:
    await asyncio.gather(
        *(
            scene.queue.add("paint", None, JobOptions(id=f"j{n}", remove_on_complete=KeepJobs(age_s=1)))
            for n in range(40)
        )
    )
    for claim in (await scene.claim(40)).claims:
        await scene.finish(claim)
    removed = 0
    while removed < 40:
        removed += await scene.scripts.remove_expired(1)
    entries = await scene.client.xrange(scene.queue.keys.events)
    assert sum(b'"type":"removed"' in fields[b"e"] for _, fields in entries) == 40


@pytest.mark.parametrize("text", [b"1e999", b"[1", b""])
def test_raw_json_that_nobody_could_read_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidOption):
        encode_json("data", msgspec.Raw(text), 100)


async def test_an_event_that_cannot_be_read_hides_no_other(queue: Queue, scene: Scene) -> None:
    async with Hub(queue) as hub, hub.watch() as watch:
        claim = await scene.active("a")
        await scene.scripts.update_progress("a", claim.lease, Report(1, "", b"1e999"))
        await scene.finish(claim)
        seen = [await anext(watch) for _ in range(4)]
    assert [event.type for event in seen] == ["added", "active", "unreadable", "completed"]


async def test_a_watch_opens_only_when_its_subscription_is_confirmed(
    queue: Queue, server: Server, runtime_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.scripts.listener.POLL_S", 0.05)
    async with FaultProxy(runtime_folder / f"{queue.name}.sock", server.socket) as proxy:
        client = connect(proxy.url)
        hub = Hub(Queue(queue.name, client))
        async with proxy.blackhole(), hub:
            opened = asyncio.create_task(hub.watch().__aenter__())
            done, _ = await asyncio.wait([opened], timeout=0.3)
            assert not done
            opened.cancel()
            await asyncio.wait([opened])
        await client.aclose()


async def test_a_worker_that_is_cut_off_waits_for_its_processors_to_clean_up(queue: Queue, url: str) -> None:
    said: list[str] = []
    begun = asyncio.Event()

    async def process(_: ActiveJob) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.3)
            said.append("clean")

    worker = Worker(queue.name, process, url)
    running = asyncio.create_task(worker.run())
    await queue.add("paint")
    await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    assert said == ["clean"]
