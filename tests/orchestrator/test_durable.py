"""Durable adds: what was answered is in the server's append-only file, or the caller is told that it may not be."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.errors import InvalidOption, OutcomeUnknown, QueueFull
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.sync import Queue as SyncQueue
from tests.conftest import Servers
from tests.faultproxy import FaultProxy
from tests.servers import Server

EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")
Launch = Callable[..., Server]


@pytest.fixture
def launch(runtime_folder: Path, queue_name: str) -> Iterator[Launch]:
    """Start a server of the test's own."""
    started: list[Server] = []

    def launch(*options: str, kind: str = "valkey") -> Server:
        server = Server(kind, runtime_folder / f"{queue_name[-8:]}{len(started)}", *options)
        started.append(server)
        server.start()
        return server

    yield launch
    for server in started:
        server.stop()


async def test_what_was_answered_is_there_after_the_server_was_killed_at_once(launch: Launch, queue_name: str) -> None:
    server = launch(*EVERYSEC)
    answered: set[str] = set()
    for _ in range(6):
        async with (
            Queue(queue_name, server.url, durable=True) as queue,
            FlowProducer(server.url, durable=True) as flows,
        ):
            added = await asyncio.gather(*(queue.add("paint", number) for number in range(4)))
            bulk = await queue.add_bulk([("paint", number) for number in range(3)])
            tree = await flows.add(FlowJob("book", queue_name, children=[FlowJob("page", queue_name)]))
            answered |= {job.id for job in (*added, *bulk, tree.job, tree.children[0].job)}
            last = await queue.add("paint")
            server.kill()
            answered.add(last.id)
        server.start()
        async with Queue(queue_name, server.url) as queue:
            assert {
                job.id for job in await queue.get_jobs([JobState.WAITING, JobState.WAITING_CHILDREN], 0, 100)
            } == answered


async def test_a_server_that_cannot_promise_it_is_refused_and_nothing_is_stored(
    servers: Servers, queue_name: str
) -> None:
    old, forgetful = servers.get("redis"), servers.get("valkey")
    for server, problem in ((old, "not supported by this server.*Redis ≥ 7.2"), (forgetful, "needs an append-only")):
        async with Queue(queue_name, server.url, durable=True) as queue:
            with pytest.raises(InvalidOption, match=problem) as told:
                await queue.add("paint")
            assert told.value.field == "durable"
            assert sum((await queue.get_counts()).values()) == 0
            assert not await queue.client.exists(queue.keys.synced)


async def test_without_the_word_of_the_disk_the_outcome_is_unknown_and_adding_again_is_safe(
    launch: Launch, queue_name: str
) -> None:
    server = launch("--appendonly", "yes", "--appendfsync", "no")
    async with Queue(queue_name, server.url, durable=True, deadline_s=1) as queue:
        with pytest.raises(OutcomeUnknown, match="not synced"):
            await queue.add("paint", None, JobOptions(id="one"))
        server.ask("CONFIG", "SET", "appendfsync", "always")
        again = await queue.add("paint", None, JobOptions(id="one"))
        assert again.id == "one"
        assert (await queue.get_counts())["waiting"] == 1


async def test_a_refusal_is_told_as_ever_and_scripts_that_the_server_forgot_are_sent_again(
    launch: Launch, queue_name: str
) -> None:
    server = launch(*EVERYSEC)
    async with Queue(queue_name, server.url, durable=True) as queue:
        await queue.client.script_flush()
        await queue.add("paint")
        await queue.set_max_waiting(1)
        with pytest.raises(QueueFull):
            await queue.add("paint")
        assert (await queue.get_counts())["waiting"] == 1


@pytest.mark.parametrize("how", ["close", "swallow"])
async def test_a_lost_word_of_the_disk_makes_no_second_job(
    launch: Launch, queue_name: str, tmp_path_factory: pytest.TempPathFactory, runtime_folder: Path, how: str
) -> None:
    server = launch(*EVERYSEC)
    async with FaultProxy(runtime_folder / f"p{queue_name[-8:]}", server.socket) as proxy:
        async with Queue(queue_name, f"{proxy.url}?socket_timeout=1", durable=True) as queue:
            await queue.add("paint")
            proxy.lose_reply("close" if how == "close" else "swallow", b"WAITAOF")
            job = await queue.add("paint")
            assert proxy.lost == 1
            assert not job.duplicated
            assert (await queue.get_counts())["waiting"] == 2


async def test_it_holds_on_a_cluster_and_for_calls_without_async(launch: Launch, queue_name: str) -> None:
    node = launch(*EVERYSEC, kind="valkey-cluster")
    async with Queue(queue_name, f"redis+cluster://127.0.0.1:{node.port}", durable=True) as queue:
        job = await queue.add("paint")
        node.kill()
        node.start()
        assert await queue.get_job(job.id) is not None
    plain = launch(*EVERYSEC)

    def add() -> str:
        with SyncQueue(queue_name, plain.url, durable=True) as queue:
            return queue.add("paint").id

    job_id = await asyncio.to_thread(add)
    plain.kill()
    plain.start()
    async with Queue(queue_name, plain.url) as queue:
        assert await queue.get_job(job_id) is not None
