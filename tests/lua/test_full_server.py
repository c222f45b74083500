"""A server at maxmemory refuses only what a user adds: running jobs go on, and the queue drains."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.exceptions import OutOfMemoryError

from orchestrator.active_job import ActiveJob
from orchestrator.errors import StoreUnavailable
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.job import JobState
from orchestrator.queue import Queue
from orchestrator.scripts import Client, Finish, Report, connect
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene
from tests.servers import KINDS, Server, require

MAX_MEMORY = 24 * 1024 * 1024


@pytest.fixture(params=KINDS, scope="module")
def small_server(request: pytest.FixtureRequest, runtime_folder: Path) -> Iterator[Server]:
    """A server with little memory."""
    require(request.param)
    options = ("--maxmemory", str(MAX_MEMORY), "--maxmemory-policy", "noeviction")
    server = Server(request.param, runtime_folder / f"small-{request.param}", *options)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def client(small_server: Server) -> AsyncIterator[Client]:
    """A client of the small server."""
    client = connect(small_server.url)
    yield client
    await client.config_set("maxmemory", 0)
    await client.delete("filler")
    await client.config_set("maxmemory", MAX_MEMORY)
    await client.aclose()


async def fill(client: Client) -> None:
    """Write until the server refuses."""
    part = 1024 * 1024
    while part:
        try:
            await client.append("filler", b"x" * part)
        except OutOfMemoryError:
            part //= 4
    with pytest.raises(OutOfMemoryError):
        await client.set("one", "more")


async def test_an_add_to_a_full_server_is_refused_and_changes_nothing(scene: Scene, client: Client) -> None:
    await scene.add("a")
    await fill(client)
    before = await client.dbsize()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="full"):
            await scene.queue.add("paint", {"x": 1})
    assert await client.dbsize() == before
    assert (await scene.queue.get_counts())["waiting"] == 1


async def test_a_flow_is_refused_whole_by_a_full_server_and_one_that_is_there_goes_on(
    scene: Scene, client: Client
) -> None:
    name = scene.queue.name
    flows = FlowProducer(client)
    tree = await flows.add(FlowJob("root", name, children=[FlowJob("good", name), FlowJob("bad", name)]))
    await fill(client)
    before = await client.dbsize()
    with pytest.raises(StoreUnavailable, match="full"):
        await flows.add(FlowJob("root", name, children=[FlowJob("child", name)]))
    assert await client.dbsize() == before
    good, bad = (await scene.claim(2)).claims
    assert await scene.finish(good, content=b'"%s"' % (b"r" * 60_000)) == "completed"
    assert await scene.finish(bad, "failed", b'{"kind":"poison","message":"","details":{}}') == "failed"
    root = await scene.queue.get_job(tree.job.id)
    assert root is not None
    assert root.reason == "child"
    await scene.queue.retry(root.id)
    await scene.queue.remove(root.id)
    await check_queue(scene.queue)
    assert (await scene.queue.get_counts())["completed"] == 0


async def test_every_step_of_a_running_job_goes_on_and_the_duties_work(scene: Scene, client: Client) -> None:
    held = await scene.active("a", attempts=2)
    stalled = await scene.active("s")
    await scene.add("b", delay_ms=1000)
    await scene.add("c")
    await scene.client.zadd(f"{scene.prefix}active", {"s": 1}, xx=True)
    await scene.make_due()
    await fill(client)

    for number in range(1, 100):
        await scene.scripts.update_progress("a", held.lease, Report(number, "", b'"%s"' % (b"x" * 1500)))
    await scene.scripts.update_progress("a", held.lease, Report(100, "preview_ready", b"1", b"y" * 20_000))
    await scene.scripts.add_log("a", held.lease, 101, "z" * 10_000)
    assert await scene.scripts.extend_locks(LEASE_MS, 1000, [("a", held.lease)]) == [True]
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 1
    assert await scene.scripts.move_due_jobs(10) == 1
    assert await scene.finish(held, "failed", b'{"kind":"transient","message":"","details":{}}', 0) == "waiting"
    await scene.scripts.create_group("relay")
    await scene.scripts.heartbeat("w", b'{"id":"w"}')
    await scene.scripts.set_metrics("m", enabled=True)
    await scene.scripts.pause("p", paused=True)
    await scene.scripts.pause("q", paused=False)
    await scene.scripts.cancel_job("x", "c", b'{"by":"","reason":""}')
    await scene.scripts.change_priority("y", "b", 5)
    for _ in range(3):
        (claim,) = (await scene.claim()).claims
        ending = Finish(claim.job.id, claim.lease, "completed", b'"%s"' % (b"r" * 5000))
        await scene.scripts.move_to_finished(scene.token(), "w:1", "w", LEASE_MS, INTERVAL_MS, 0, [ending])
    assert stalled.job.id == "s"
    await scene.scripts.reprocess_job("again", "a")
    await scene.scripts.remove_job("rm", "b")
    await scene.scripts.remove_expired(10)

    await check_queue(scene.queue)
    counts = await scene.queue.get_counts()
    assert (counts["waiting"], counts["completed"], counts["canceled"], counts["active"]) == (1, 1, 1, 0)


async def test_a_full_server_drains_and_takes_jobs_again(small_server: Server, queue: Queue, client: Client) -> None:
    """Eight running jobs keep their leases while adds are refused until the server has room again."""
    filled = asyncio.Event()

    async def work(job: ActiveJob) -> str:
        await filled.wait()
        for step in range(5):
            await job.update_progress(step)
        return "x" * 1000

    jobs = [await queue.add("paint", {"n": n}) for n in range(24)]
    async with Worker(queue.name, work, small_server.url, concurrency=8, lease_ms=1500, interval_ms=200):

        async def eight_run() -> bool:
            return (await queue.get_counts())["active"] == 8

        await wait_until(eight_run)
        await fill(client)
        for _ in range(20):
            with pytest.raises(StoreUnavailable):
                await queue.add("paint")
        filled.set()

        async def drained() -> bool:
            return (await queue.get_counts())["completed"] == 24

        await wait_until(drained)
        await check_queue(queue)
        await client.config_set("maxmemory", 2 * MAX_MEMORY)
        late = await queue.add("paint")

        async def is_done() -> bool:
            job = await queue.get_job(late.id)
            return job is not None and job.state is JobState.COMPLETED

        await wait_until(is_done)
    for job in jobs:
        history = await queue.get_history(job.id)
        assert [event.type for event in history] == ["added", "active", *["progress"] * 5, "completed"]
