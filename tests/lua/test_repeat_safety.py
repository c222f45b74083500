"""Every script may run twice with the same arguments, also when a reply is lost; and none changes a definition."""

from pathlib import Path

import pytest

import lua
from orchestrator.keys import Keys
from orchestrator.queue import Queue
from orchestrator.scripts import Scripts, connect
from orchestrator.scripts.library import load
from tests.dump import Dump, dump, timeless, without
from tests.faultproxy import FaultProxy, Loss
from tests.lua.scenarios import SCENARIOS, Scenario
from tests.lua.scene import Scene
from tests.servers import Server

SERVERS = ["valkey", "redis", "valkey-cluster"]
SWALLOWED_S = 0.15

over_all = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
on_all = pytest.mark.parametrize("server", SERVERS, indirect=True)


def fixed(found: Dump) -> Dump:
    """Without what tells the time: when a duty last looked, a worker was heard of; when a lease or a closing ends."""
    return without(found, "meta.looked_at", "meta.closing_until", "active", "workers")


async def assert_immutable(scene: Scene) -> None:
    for job_id, before in scene.definitions.items():
        after = await scene.definition(job_id)
        gone = not await scene.client.exists(f"{scene.prefix}state:{job_id}")
        assert after == (None if gone else before), f"the definition of {job_id} changed"
        assert gone or before


def test_the_table_covers_all_scripts() -> None:
    assert {scenario.script for scenario in SCENARIOS} == set(lua.names())
    assert len({str(scenario) for scenario in SCENARIOS}) == len(SCENARIOS)


@on_all
@over_all
async def test_running_twice_is_running_once(scene: Scene, scenario: Scenario) -> None:
    call = await scenario.arrange(scene)
    first = await call.make(scene.scripts, scenario.script)
    once = await dump(scene.client, scene.prefix)
    await assert_immutable(scene)

    second = await call.make(scene.scripts, scenario.script)

    assert fixed(await dump(scene.client, scene.prefix)) == fixed(once)
    await assert_immutable(scene)
    if not scenario.counts:
        assert second == first


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
@over_all
async def test_a_reply_lost_with_its_connection_changes_nothing(
    scene: Scene, scenario: Scenario, server: Server, runtime_folder: Path
) -> None:
    await assert_loss_changes_nothing(scene, scenario, server, runtime_folder, "close")


@over_all
async def test_a_reply_that_never_comes_changes_nothing(
    scene: Scene, scenario: Scenario, server: Server, runtime_folder: Path
) -> None:
    await assert_loss_changes_nothing(scene, scenario, server, runtime_folder, "swallow")


async def assert_loss_changes_nothing(
    scene: Scene, scenario: Scenario, server: Server, runtime_folder: Path, how: Loss
) -> None:
    await load(scene.client)
    twin = Scene(Queue(f"{scene.queue.name}-twin", scene.client))
    call = await scenario.arrange(twin)
    expected = await call.make(twin.scripts, scenario.script)

    call = await scenario.arrange(scene)
    async with FaultProxy(runtime_folder / f"p-{server.kind}", server.socket) as proxy:
        client = connect(proxy.url, timeout_s=SWALLOWED_S)
        proxy.lose_reply(how)
        answer = await call.make(Scripts(client, Keys(scene.queue.name)), scenario.script)
        assert proxy.lost == 1
        await client.aclose()

    if not scenario.counts:
        assert comparable(answer, scene) == comparable(expected, twin)
    assert comparable(fixed(await dump(scene.client, scene.prefix)), scene) == comparable(
        fixed(await dump(twin.client, twin.prefix)), twin
    )
    await assert_immutable(scene)


def comparable(value: object, scene: Scene) -> str:
    return timeless(value).replace(scene.queue.name, "QUEUE")
