"""On a cluster: keys of a foreign slot are refused, and a script during a slot's move does all or nothing."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis.crc import key_slot
from redis.exceptions import AskError, ResponseError, TryAgainError

import lua
from orchestrator.keys import Keys
from orchestrator.queue import Queue
from orchestrator.scripts import Client, Scripts, connect
from orchestrator.scripts.connection import node_of
from tests.conftest import wait_until
from tests.dump import dump, timeless, without
from tests.lua.scenarios import SCENARIOS, Scenario
from tests.lua.scene import Scene
from tests.servers import CLUSTER_KINDS, Server

on_clusters = pytest.mark.parametrize("server", CLUSTER_KINDS, indirect=True)


@on_clusters
@pytest.mark.parametrize("name", [name for name in lua.names() if not name.startswith("get_")])
async def test_a_write_to_a_foreign_slot_is_refused(client: Client, queue: Queue, name: str) -> None:
    text = lua.paste([name], lua._read).replace("local reply =", "redis.call('SET', 'foreign', '1')\nlocal reply =")
    assert "foreign" in text
    planted = lua.named(text)
    node: Any = await node_of(client, queue.keys.meta)
    await node.function_load(planted.text)
    with pytest.raises(ResponseError, match=r"non local key|not hash to the same slot"):
        await node.fcall(planted.function(name), 2, queue.keys.meta, queue.keys.none, *"123456")
    assert not await client.exists("foreign")


class Move(NamedTuple):
    """Two nodes of a cluster, between which a slot moves."""

    source: Any
    target: Any
    target_port: int
    source_id: str
    target_id: str

    async def begin(self, slot: int, keys: list[bytes]) -> None:
        """Mark the slot as moving and move some keys."""
        await self.target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.source_id)
        await self.source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.target_id)
        await self.move(keys)

    async def move(self, keys: list[bytes]) -> None:
        """Move keys."""
        for key in keys:
            await self.source.execute_command("MIGRATE", "127.0.0.1", self.target_port, key, 0, 5000)

    async def end(self, slot: int) -> None:
        """Move the rest and give the slot to the target."""
        await self.move(await self.source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10_000))
        for node in (self.target, self.source):
            await node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.target_id)


@pytest.fixture(scope="module")
def nodes(runtime_folder: Path) -> Iterator[tuple[Server, Server]]:
    """Two nodes; the first has all slots but one (of a node without any redis-py's client knows nothing)."""
    source = Server("valkey-cluster", runtime_folder / "node-1", slots=(0, 16382))
    target = Server("valkey-cluster", runtime_folder / "node-2", slots=(16383, 16383))
    for node in (source, target):
        node.start()
    yield source, target
    for node in (source, target):
        node.stop()


@pytest.fixture
async def move(nodes: tuple[Server, Server]) -> AsyncIterator[Move]:
    """The two nodes, met."""
    source, target = nodes
    first: Any = connect(source.url)
    second: Any = connect(target.url)
    await first.execute_command("CLUSTER", "MEET", "127.0.0.1", target.port, target.bus_port)

    async def met() -> bool:
        views = [await node.execute_command("CLUSTER", "INFO") for node in (first, second)]
        return all(b"cluster_known_nodes:2" in view and b"cluster_state:ok" in view for view in views)

    await wait_until(met)
    names = [(await node.execute_command("CLUSTER", "MYID")).decode() for node in (first, second)]
    yield Move(first, second, target.port, *names)
    await first.aclose()
    await second.aclose()


@pytest.fixture
async def cluster(nodes: tuple[Server, Server], move: Move) -> AsyncIterator[Any]:
    """A client of both nodes."""
    client = connect(f"redis+cluster://127.0.0.1:{nodes[0].port}")
    yield client
    await client.aclose()


@pytest.fixture(scope="module")
def unmoved() -> Iterator[str]:
    """Names of queues in slots of the first node, each slot once."""
    used = {16383}

    def names() -> Iterator[str]:
        for number in itertools.count():
            if (slot := key_slot(f"q{number}".encode())) not in used:
                used.add(slot)
                yield f"q{number}"

    return names()


@pytest.mark.parametrize(("number", "scenario"), list(enumerate(SCENARIOS)), ids=str)
async def test_a_script_during_a_slots_move_changes_nothing_and_is_done_after_it(
    number: int, scenario: Scenario, move: Move, cluster: Any, unmoved: Iterator[str]
) -> None:
    queue_name, twin_name = next(unmoved), next(unmoved)
    twin = Scene(Queue(twin_name, move.source))
    call = await scenario.arrange(twin)
    expected = await call.make(twin.scripts, scenario.script)
    scene = Scene(Queue(queue_name, move.source))
    call = await scenario.arrange(scene)
    slot = key_slot(queue_name.encode())
    keys = sorted([key async for key in move.source.scan_iter(match=f"{scene.prefix}*")])
    try:
        await move.begin(slot, keys[number % 2 :: 2])
        before = await both(move, scene.prefix)
        args = await arguments(scenario, call)
        for node, asking in ((move.source, False), (move.target, True)):
            with pytest.raises((TryAgainError, AskError)):
                await evaluate(node, scene, scenario.script, args, asking=asking)
            assert await both(move, scene.prefix) == before

        scripts = Scripts(cluster, Keys(queue_name))
        pending = asyncio.create_task(call.make(scripts, scenario.script))
        await asyncio.wait([pending], timeout=0.05)
        assert not pending.done()
        assert await both(move, scene.prefix) == before
    finally:
        await move.end(slot)

    answer = await pending
    if not scenario.counts:
        assert comparable(answer, queue_name) == comparable(expected, twin_name)
    after = without(await dump(move.target, scene.prefix), "meta.looked_at", "active", "workers")
    once = without(await dump(move.source, twin.prefix), "meta.looked_at", "active", "workers")
    assert comparable(after, queue_name) == comparable(once, twin_name)
    assert not [key async for key in move.source.scan_iter(match=f"{scene.prefix}*")]


async def both(move: Move, prefix: str) -> list[Any]:
    """What the two nodes hold, read as a slot that is being imported is read."""
    found = []
    for node in (move.source, move.target):
        keys = sorted([key async for key in node.scan_iter(match=f"{prefix}*")])
        async with node.client() as connection:
            for key in keys:
                await connection.execute_command("ASKING")
                found.append((key, await connection.execute_command("DUMP", key)))
    return found


async def arguments(scenario: Scenario, call: Any) -> list[Any]:
    """The script's arguments, as `Scripts` would send them."""
    sent: list[Any] = []

    class Sink(Scripts):
        async def _run(self, name: str, *args: Any, until: float | None = None) -> Any:
            sent.extend(args)
            raise InterruptedError

    with contextlib.suppress(InterruptedError):
        await getattr(Sink(None, Keys("x")), scenario.script)(*call.args, **call.fields)  # type: ignore[arg-type]
    return sent


async def evaluate(node: Any, scene: Scene, name: str, args: list[Any], *, asking: bool) -> None:
    keys = scene.queue.keys
    async with node.client() as connection:
        if asking:
            await connection.execute_command("ASKING")
        await connection.execute_command("FCALL", lua.library().function(name), 2, keys.meta, keys.none, *args)


def comparable(value: object, queue_name: str) -> str:
    return re.sub(rf"\b{queue_name}\b", "QUEUE", timeless(value))
