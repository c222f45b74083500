"""A full server refuses new schedules and makes none of their jobs; claiming goes on, and with room so do they."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from orchestrator.errors import StoreUnavailable
from orchestrator.schedule import RepeatOptions
from orchestrator.scripts import Client, connect
from orchestrator.scripts.adding import OUTBOX_MAX
from tests.invariants import check_queue
from tests.lua.scene import Scene, drain
from tests.lua.scheduling import pass_slots, upsert
from tests.lua.test_full_server import MAX_MEMORY, fill
from tests.record import change_meta
from tests.servers import KINDS, Server, require

EVERY = RepeatOptions(every_ms=60_000)
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=KINDS, scope="module")
def small_server(request: pytest.FixtureRequest, runtime_folder: Path) -> Iterator[Server]:
    """A server with little memory."""
    require(request.param)
    options = ("--maxmemory", str(MAX_MEMORY), "--maxmemory-policy", "noeviction")
    server = Server(request.param, runtime_folder / f"full-{request.param}", *options)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def client(small_server: Server) -> AsyncIterator[Client]:
    """A client of the small server, which is full at most until the test ends."""
    client = connect(small_server.url)
    yield client
    await make_room(client)
    await client.aclose()


async def make_room(client: Client) -> None:
    await client.config_set("maxmemory", 0)
    await client.delete("filler")
    await client.config_set("maxmemory", MAX_MEMORY)


async def test_slots_that_come_while_the_server_is_full_make_one_job_when_it_has_room(
    scene: Scene, client: Client
) -> None:
    await upsert(scene, "s", EVERY)
    await drain(scene)
    slots = await pass_slots(scene, "s", 2)
    await scene.add("a")
    await fill(client)
    with pytest.raises(StoreUnavailable, match="full"):
        await upsert(scene, "other", EVERY)
    claims = await scene.claim()
    assert [claim.job.id for claim in claims.claims] == ["a"]
    idle = await scene.claim()
    assert not idle.claims
    assert 0 < idle.sleep_ms <= 1000, "it looks again within a second, and not all the time"
    assert await scene.scripts.move_due_jobs(10) == 0
    await scene.finish(claims.claims[0])

    await make_room(client)
    await change_meta(client, scene.queue.keys.meta, schedule_at=slots[0])  # the second is over
    assert await drain(scene) == [f"s:{slots[0]}"]
    found = await scene.queue.get_job_scheduler("s")
    assert found is not None
    assert (found.made, found.skipped) == (2, 1)
    await check_queue(scene.queue)


async def test_a_schedule_can_be_filled_and_removed_on_a_full_server(scene: Scene, client: Client) -> None:
    await upsert(scene, "s", RepeatOptions(cron="*/5 * * * *"), keep_slots=2)
    await fill(client)
    (hungry,) = await scene.scripts.get_hungry_schedules(1)
    assert await scene.scripts.fill_schedule("s", hungry.version, hungry.repeat.slots_after(hungry.known_to))
    assert await scene.queue.remove_job_scheduler("s")


async def test_an_outbox_that_nobody_empties_holds_back_jobs_of_schedules_too(scene: Scene, client: Client) -> None:
    assert f"OUTBOX_FULL = {OUTBOX_MAX}" in (ROOT / "lua/includes/run_schedules.lua").read_text()
    await upsert(scene, "s", EVERY)
    await drain(scene)
    (slot,) = await pass_slots(scene, "s", 1)
    await client.config_set("maxmemory", 0)
    await client.eval(
        "for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'e', '') end", 1, scene.queue.keys.outbox, OUTBOX_MAX
    )
    assert await drain(scene) == []
    await client.xtrim(scene.queue.keys.outbox, 10, approximate=False)
    await change_meta(client, scene.queue.keys.meta, schedule_at=slot)
    assert await drain(scene) == [f"s:{slot}"]
