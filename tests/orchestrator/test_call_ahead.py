"""How an idle worker is handed a job by what wakes it, and what becomes of that when something comes between."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import exceptions as redis_errors
from redis.asyncio import Redis

from orchestrator.active_job import ActiveJob
from orchestrator.group import Batch, RateLimit
from orchestrator.job import JobState
from orchestrator.queue import Queue
from orchestrator.scripts import Claims, connect
from orchestrator.scripts.connection import send_together
from orchestrator.worker import Worker
from orchestrator.worker.claimer import BLOCK_S, LAST_CALLS_S
from tests.conftest import wait_until
from tests.faultproxy import FaultProxy
from tests.invariants import check_queue
from tests.orchestrator.running import ended, types, until_active
from tests.orchestrator.ways import Ways
from tests.servers import Server

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


class Ran:
    """A processor that notes what ran; jobs called `hold` wait until they may end."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.may_end = asyncio.Event()

    async def process(self, job: ActiveJob) -> str:
        self.ids.append(job.id)
        if job.name == "hold":
            await self.may_end.wait()
        return job.lease


@pytest.fixture
async def ran() -> AsyncIterator[Ran]:
    """What ran in the test's workers."""
    ran = Ran()
    yield ran
    ran.may_end.set()


async def sleepers(queue: Queue) -> list[dict[str, Any]]:
    """The connections that wait for a marker."""
    client: Any = queue.client
    return [each for each in await client.client_list() if each["cmd"] == "bzpopmin" and "b" in each["flags"]]


async def until_asleep(queue: Queue, ways: Ways | None = None, *, ahead: bool = True) -> None:
    """Wait until somebody sleeps at the server; a worker with a call behind that, or without."""

    async def is_asleep() -> bool:
        before = ways and (ways.is_ahead, ways.ahead)
        found = await sleepers(queue)
        return bool(found) and (ways is None or before == (ahead, ways.ahead))

    await wait_until(is_asleep)


async def test_what_wakes_an_idle_worker_brings_the_job(queue: Queue, url: str, ran: Ran) -> None:
    worker = Worker(queue.name, ran.process, url)
    ways = Ways(worker)
    async with worker:
        for number in range(3):
            await until_asleep(queue, ways)
            made, ahead = len(ways.usual), ways.ahead
            job = await queue.add("hold")
            await wait_until(lambda: len(ran.ids) == number + 1)  # noqa: B023
            assert len(ways.usual) == made, "no call but the one that was there already"
            assert ways.ahead <= ahead + 1, "at most it had slept to its end just before"
            ran.may_end.set()
            await ended(queue, job.id)
            ran.may_end.clear()
            assert await types(queue, job.id) == ["added", "active", "completed"]
    await check_queue(queue)


async def test_a_worker_with_more_slots_asks_for_the_others_at_once(queue: Queue, url: str, ran: Ran) -> None:
    worker = Worker(queue.name, ran.process, url, concurrency=8)
    async with worker:
        await until_asleep(queue)
        await queue.add_bulk([("hold", None)] * 8)
        began = time.monotonic()
        await wait_until(lambda: len(ran.ids) == 8)
        assert time.monotonic() - began < BLOCK_S
        ran.may_end.set()


async def test_a_client_of_the_users_own_is_handed_jobs_too(queue: Queue, url: str, ran: Ran) -> None:
    client: Any = Redis.from_url(url)
    worker = Worker(queue.name, ran.process, client)
    ways = Ways(worker)
    async with worker:
        await until_asleep(queue, ways)
        made = len(ways.usual)
        await queue.add("hold")
        await wait_until(lambda: bool(ran.ids))
        assert len(ways.usual) == made
        ran.may_end.set()
    await client.aclose()


# ── who is not handed anything ───────────────────────────────────────────────────────────────────────


async def test_a_worker_that_runs_a_job_is_woken_with_empty_hands(queue: Queue, url: str, ran: Ran) -> None:
    """Its loop may be held up: then it must not have a job that it cannot begin."""
    worker = Worker(queue.name, ran.process, url, concurrency=2)
    ways = Ways(worker)
    async with worker:
        await queue.add("hold")
        await until_active(queue, 1)
        await until_asleep(queue, ways, ahead=False)
        made, ahead = len(ways.usual), ways.ahead
        await queue.add("hold")
        await until_active(queue, 2)
        assert ways.ahead == ahead
        assert ways.usual[made:][0] == ("move_to_active", 1)
        ran.may_end.set()


async def test_a_worker_whose_other_call_may_bring_a_job_is_woken_with_empty_hands(
    queue: Queue, url: str, ran: Ran
) -> None:
    """What that brings may hold the loop up."""
    may_go_on = asyncio.Event()
    worker = Worker(queue.name, ran.process, url, concurrency=2)
    ways = Ways(worker)
    scripts: Any = worker.queue.scripts
    run = scripts._run

    async def hold_the_first(name: str, *args: Any) -> Any:
        is_first = name == "move_to_active" and not ways.usual
        answer = await run(name, *args)
        if is_first:
            await may_go_on.wait()
        return answer

    scripts._run = hold_the_first
    async with worker:
        await until_asleep(queue, ways, ahead=False)
        may_go_on.set()
        job = await queue.add("paint")
        await ended(queue, job.id)
        await until_asleep(queue, ways)


async def test_a_worker_at_a_limit_of_its_own_leaves_the_job_to_others(queue: Queue, url: str, ran: Ran) -> None:
    worker = Worker(queue.name, ran.process, url, limiter=RateLimit(1, 60_000), name="limited")
    ways = Ways(worker)
    async with worker:
        await until_asleep(queue, ways)
        first = await queue.add("paint")
        await ended(queue, first.id)
        await wait_until(lambda: worker._claimer.is_looking() and not worker._attempts)
        ahead = ways.ahead
        second = await queue.add("paint")
        async with Worker(queue.name, ran.process, url):
            await ended(queue, second.id)
        assert ways.ahead == ahead
        assert ran.ids == [first.id, second.id]


@pytest.mark.parametrize("choosy", [{"warm_keys": lambda: ["a"]}, {"batch": Batch(2)}])
async def test_a_worker_that_chooses_asks_when_it_is_awake(queue: Queue, url: str, choosy: dict[str, Any]) -> None:
    async def process(jobs: Any) -> list[int]:
        return [1]

    worker = Worker(queue.name, process, url, **choosy)
    ways = Ways(worker)
    async with worker:
        await until_asleep(queue, ways, ahead=False)
        job = await queue.add("paint")
        await ended(queue, job.id)
    assert ways.ahead == 0


# ── what comes between ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["pause", "stop", "close"])
async def test_what_comes_to_a_worker_that_takes_no_more_is_given_back(
    queue: Queue, url: str, ran: Ran, how: str
) -> None:
    """The server has handed the job out, and the worker has not read it yet."""
    never = asyncio.Event()

    async def keep_unread(claims: Claims) -> None:
        if claims.claims:
            await never.wait()

    worker = Worker(queue.name, ran.process, url)
    ways = Ways(worker)
    ways.after = keep_unread
    async with worker:
        await until_asleep(queue, ways)
        job = await queue.add("paint")
        await until_active(queue, 1)
        await {"pause": worker.pause, "stop": worker.stop, "close": lambda: worker.close(force=True)}[how]()

        async def is_back() -> bool:
            return await types(queue, job.id) == ["added", "active", "waiting"]

        await wait_until(is_back)
        ways.after = None
        assert ways.usual[-2:] == [("move_to_active", 0), ("move_to_finished", 0)]
        if how == "pause":
            worker.resume()
        else:
            worker = Worker(queue.name, ran.process, url)
            await worker.__aenter__()
        await ended(queue, job.id)
        await worker.stop()
    assert ran.ids == [job.id]
    assert (await types(queue, job.id))[2:] == ["waiting", "active", "completed"]
    await check_queue(queue)


async def test_a_paused_worker_takes_back_the_call_it_sent_ahead(queue: Queue, url: str, ran: Ran) -> None:
    worker = Worker(queue.name, ran.process, url)
    ways = Ways(worker)
    async with worker:
        await until_asleep(queue, ways)
        made = len(ways.usual)
        await worker.pause()
        await wait_until(lambda: ways.usual[made:] == [("move_to_active", 0)])
        job = await queue.add("paint")
        async with Worker(queue.name, ran.process, url):
            await ended(queue, job.id)
        assert ways.usual[made:] == [("move_to_active", 0)]
        worker.resume()
        await until_asleep(queue, ways)
        job = await queue.add("paint")
        await ended(queue, job.id)
    assert len(ran.ids) == 2
    await check_queue(queue)


async def test_more_slots_end_the_sleep_and_are_used(queue: Queue, url: str, ran: Ran) -> None:
    worker = Worker(queue.name, ran.process, url)
    async with worker:
        await until_asleep(queue)
        worker.concurrency = 3
        ids = [(await queue.add("hold")).id for _ in range(3)]
        await wait_until(lambda: len(ran.ids) == 3)
        ran.may_end.set()
        await ended(queue, *ids)
    await check_queue(queue)


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────


async def test_a_connection_that_is_killed_while_it_waits_costs_nothing(queue: Queue, url: str, ran: Ran) -> None:
    worker = Worker(queue.name, ran.process, url)
    ways = Ways(worker)
    async with worker:
        client: Any = queue.client
        for number in range(3):
            await until_asleep(queue, ways)
            (sleeper,) = await sleepers(queue)
            made = len(ways.usual)
            await client.client_kill_filter(_id=sleeper["id"])
            await wait_until(lambda: ways.usual[made:] == [("move_to_active", 1)])  # noqa: B023
            await until_asleep(queue, ways, ahead=False)
            job = await queue.add("paint")
            await ended(queue, job.id)
            assert len(ran.ids) == number + 1
    await check_queue(queue)


async def test_a_job_whose_answer_is_lost_is_begun_once_by_the_call_sent_again(
    queue: Queue, url: str, ran: Ran
) -> None:
    async def lose(claims: Claims) -> None:
        if claims.claims:
            raise redis_errors.ConnectionError("lost")

    worker = Worker(queue.name, ran.process, url)
    ways = Ways(worker)
    ways.after = lose
    async with worker:
        for number in range(3):
            await until_asleep(queue, ways)
            made = len(ways.usual)
            job = await queue.add("hold")
            await wait_until(lambda: len(ran.ids) == number + 1)  # noqa: B023
            assert ways.usual[made:] == [("move_to_active", 1)]
            ran.may_end.set()
            await ended(queue, job.id)
            ran.may_end.clear()
            assert await types(queue, job.id) == ["added", "active", "completed"]
            job = await queue.add("paint")  # after a failure it sleeps once as others do
            await ended(queue, job.id)
            ran.ids.remove(job.id)
    await check_queue(queue)


async def test_a_library_that_is_gone_is_loaded_by_the_call_sent_again(queue: Queue, url: str, ran: Ran) -> None:
    worker = Worker(queue.name, ran.process, url)
    ways = Ways(worker)
    async with worker:
        await until_asleep(queue, ways)
        made = len(ways.usual)
        client: Any = queue.client
        async with client.pipeline(transaction=True) as pipeline:
            pipeline.function_flush()
            pipeline.zadd(queue.keys.marker, {"0": 0})
            await pipeline.execute()
        await wait_until(lambda: len(ways.usual) > made)
        job = await queue.add("paint")
        await ended(queue, job.id)
    assert ran.ids == [job.id]


async def test_a_late_copy_of_the_call_claims_nothing(queue: Queue, url: str, ran: Ran) -> None:
    copies: list[tuple[Any, ...]] = []
    worker = Worker(queue.name, ran.process, url)
    ways = Ways(worker)
    first = ways._ahead

    async def copying(blocking: Any, block_s: float, *args: Any) -> Claims:
        copies.append(args)
        return await first(blocking, block_s, *args)

    ways._ahead = copying
    async with worker:
        await until_asleep(queue, ways)
        await worker.pause()
        await wait_until(lambda: ways.usual[-1] == ("move_to_active", 0))
        job = await queue.add("paint")
        for copy in copies:
            assert (await queue.scripts.move_to_active(*copy)).claims == []
        assert (await queue.get_counts())["waiting"] == 1
        worker.resume()
        await ended(queue, job.id)
    assert ran.ids == [job.id]


# ── its lease ────────────────────────────────────────────────────────────────────────────────────────


async def test_an_idle_worker_stops_soon_though_the_server_is_silent(
    queue: Queue, server: Server, runtime_folder: Path, ran: Ran
) -> None:
    async with FaultProxy(runtime_folder / "silent.sock", server.socket) as proxy:
        worker = Worker(queue.name, ran.process, proxy.url)
        ways = Ways(worker)
        async with worker:
            await until_asleep(queue, ways)
            async with proxy.blackhole():
                began = time.monotonic()
                await worker.stop()
                assert time.monotonic() - began < LAST_CALLS_S / 2


async def test_a_worker_with_a_very_short_lease_is_woken_the_usual_way(queue: Queue, url: str, ran: Ran) -> None:
    worker = Worker(queue.name, ran.process, url, lease_ms=200, interval_ms=100)
    ways = Ways(worker)
    async with worker:
        await until_asleep(queue)
        job = await queue.add("paint")
        await ended(queue, job.id)
    assert not ways.ahead


@pytest.mark.parametrize(("lease_ms", "block_s"), [(1000, 0.125), (30_000, BLOCK_S)])
async def test_a_claim_is_as_good_as_new_when_it_is_read(
    queue: Queue, url: str, ran: Ran, lease_ms: int, block_s: float
) -> None:
    """Nothing was renewed, and nothing looked late."""
    worker = Worker(queue.name, ran.process, url, lease_ms=lease_ms)
    ways = Ways(worker)
    noted: list[str] = []

    @contextlib.contextmanager
    def under_way(lane: str) -> Iterator[None]:
        noted.append(lane)
        yield
        noted.remove(lane)

    worker._claimer.under_way = under_way
    async with worker:
        await until_asleep(queue, ways)
        made = len(ways.usual)
        assert noted == [], "the keeper holds no claim that the worker has not read"
        await queue.add("hold")
        await wait_until(lambda: bool(ran.ids))
        assert len(ways.usual) == made
        assert worker._keeper is not None
        assert list(worker._keeper._places) == list(worker._attempts), "and those that it has read"
        assert set(ways.blocks_s) == {block_s}
        ran.may_end.set()


async def test_an_answer_that_waited_for_longer_than_the_lease_begins_nothing(queue: Queue, url: str, ran: Ran) -> None:
    late = asyncio.Event()

    async def wait(claims: Claims) -> None:
        if claims.claims:
            await late.wait()

    worker = Worker(queue.name, ran.process, url, lease_ms=1000, interval_ms=100)
    ways = Ways(worker)
    ways.after = wait
    async with worker:
        await until_asleep(queue, ways)
        job = await queue.add("paint")
        await until_active(queue, 1)
        async with Worker(queue.name, ran.process, url, lease_ms=1000, interval_ms=100):
            await ended(queue, job.id)
        late.set()
        await until_asleep(queue, ways)
    assert ran.ids == [job.id]
    found = await queue.get_job(job.id)
    assert found is not None
    assert (found.state, found.stalled) == (JobState.COMPLETED, 1)
    await check_queue(queue)


# ── the way it is sent ───────────────────────────────────────────────────────────────────────────────


async def test_commands_sent_together_are_answered_in_order(queue: Queue, url: str) -> None:
    client = connect(url, max_connections=1)
    key = queue.keys.marker
    assert await send_together(client, key, ("ZADD", key, 0, "0"), ("ZCARD", key), ("DEL", key), ("ZCARD", key)) == [
        1,
        1,
        1,
        0,
    ]
    with pytest.raises(redis_errors.ResponseError):
        await send_together(client, key, ("HGET", key), ("ECHO", "unread"))
    assert await send_together(client, key, ("ZCARD", key)) == [0], "the error's connection is not used again"
    await client.aclose()


async def test_commands_behind_a_wait_that_was_given_up_are_never_run(queue: Queue, url: str) -> None:
    client = connect(url, max_connections=1)
    key, other = queue.keys.marker, f"{queue.keys.prefix}other"
    waiting = asyncio.create_task(send_together(client, key, ("BZPOPMIN", key, 5), ("ZADD", other, 0, "0")))
    await until_asleep(queue)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async def is_gone() -> bool:
        return not await sleepers(queue)

    await wait_until(is_gone)
    await queue.client.zadd(key, {"0": 0})
    assert await send_together(client, key, ("EXISTS", other), ("ZCARD", key)) == [0, 1]
    await client.aclose()
