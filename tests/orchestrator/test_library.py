"""The scripts' library on a server: it comes when it is missing, gives way to newer ones, keeps nothing of a call."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import NoPermissionError, ResponseError

import lua
from orchestrator.errors import StoreUnavailable
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.scripts import Client, connect
from orchestrator.scripts.library import load
from tests.conftest import wait_until
from tests.servers import KINDS, Server, require

PARTS = ["add_jobs", "get_job"]


@pytest.fixture(params=KINDS, scope="module")
def server(request: pytest.FixtureRequest, runtime_folder: Path) -> Iterator[Server]:
    """A server of our own: what is loaded on it concerns nobody else."""
    require(request.param)
    server = Server(request.param, runtime_folder / f"library-{request.param}")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """A client of that server, which has no functions."""
    client: Any = connect(server.url)
    await client.function_flush()
    yield client
    await client.config_set("maxmemory", 0)
    await client.aclose()


async def libraries(client: Any) -> set[str]:
    return {each[1].decode() for each in await client.function_list()}


async def test_it_is_loaded_by_the_first_call_and_again_after_it_was_lost(client: Any, queue: Queue) -> None:
    await queue.add("paint", opts=JobOptions(id="a"))
    assert await libraries(client) == {lua.library().name}
    await client.function_flush()
    job = await queue.get_job("a")
    assert job is not None
    assert job.state == JobState.WAITING


async def test_many_that_miss_it_at_once_all_go_on(client: Any, queue: Queue, url: str) -> None:
    clients = [connect(url) for _ in range(8)]
    await asyncio.gather(*(Queue(queue.name, each).add("paint") for each in clients))
    assert (await queue.get_counts())["waiting"] == 8
    await asyncio.gather(*(each.aclose() for each in clients))


@pytest.mark.parametrize("server", ["valkey"], indirect=True)  # WAITAOF came with Redis 7.2
async def test_a_durable_add_loads_it_too(client: Any, queue: Queue) -> None:
    await client.config_set("appendonly", "yes")
    await Queue(queue.name, client, durable=True).add("paint")
    assert (await queue.get_counts())["waiting"] == 1


async def test_of_the_other_versions_one_stays_and_foreign_libraries_all_do(client: Any, queue: Queue) -> None:
    foreign = "#!lua name=mine\nredis.register_function('mine', function() return 1 end)\n"
    await client.function_load(foreign)
    others = [lua.named(f"{lua.paste([part], lua._read)}-- another version\n") for part in PARTS]
    for other in others:
        await client.function_load(other.text)
    await queue.add("paint")
    left = await libraries(client)
    assert {"mine", lua.library().name} < left
    assert len(left & {other.name for other in others}) == 1


async def test_a_client_of_the_newer_protocol_forgets_other_versions_too(client: Any, server: Server) -> None:
    for number in range(3):
        await client.function_load(lua.named(f"{lua.paste(['get_job'], lua._read)}-- {number}\n").text)
    newer = connect(f"{server.url}?protocol=3")
    await load(newer)
    await newer.aclose()
    assert len(await libraries(client)) == 2


async def test_two_versions_work_side_by_side(client: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    new = lua.library()
    old = lua.named(f"{lua.paste(lua.names(), lua._read)}-- the version before\n")
    for version in (old, new) * 3:
        monkeypatch.setattr(lua, "library", lambda version=version: version)
        await queue.add("paint")
    assert await libraries(client) == {old.name, new.name}
    assert (await queue.get_counts())["waiting"] == 6


async def test_a_full_server_that_has_it_not_says_so_and_takes_it_when_there_is_room(client: Any, queue: Queue) -> None:
    await client.config_set("maxmemory", 1)
    with pytest.raises(StoreUnavailable, match="full"):
        await queue.get_counts()
    await client.config_set("maxmemory", 0)
    assert (await queue.get_counts())["waiting"] == 0


async def test_who_may_load_but_not_delete_loads(client: Any, queue: Queue, server: Server) -> None:
    await client.acl_setuser(
        "loader",
        enabled=True,
        nopass=True,
        keys=["*"],
        channels=["*"],
        commands=["+@all", "-function|delete", "-function|list"],
    )
    try:
        other: Any = connect(server.url)
        other.connection_pool.connection_kwargs["username"] = "loader"
        with pytest.raises(NoPermissionError):
            await other.execute_command("FUNCTION", "LIST")
        await load(other)
        await other.aclose()
    finally:
        await client.acl_deluser("loader")
    assert await libraries(client) == {lua.library().name}


async def test_a_call_that_breaks_off_leaves_nothing_to_the_next(client: Any, queue: Queue) -> None:
    await queue.add("paint", opts=JobOptions(id="a"))
    wait = f"{queue.keys.prefix}wait"
    await client.rename(wait, f"{wait}-kept")
    await client.set(wait, "no zset")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await queue.add("paint", opts=JobOptions(id="b"))
    await client.rename(f"{wait}-kept", wait)

    heard: list[bytes] = []
    async with client.pubsub() as channel:
        await channel.subscribe(queue.keys.live)

        async def listen() -> bool:
            message = await channel.get_message(timeout=0.05)
            if message and message["type"] == "message":
                heard.append(message["data"])
            return bool(heard)

        await queue.add("paint", opts=JobOptions(id="c"))
        await wait_until(listen)
    (told,) = heard
    assert told.count(b'"type":"added"') == 1
    assert b'"job":"c"' in told
    assert (await queue.get_stats()).totals["added"] == 2
