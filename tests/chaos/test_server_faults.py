"""A server that forgets scripts, or everything, that is busy, loads, pauses, or throws connections out."""

import asyncio
import contextlib
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import RedisError

from orchestrator.active_job import ActiveJob
from orchestrator.hub import Hub, Lagged
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.scripts import Client, connect, end_tasks
from orchestrator.worker import Worker
from tests.chaos.checks import IS_FULL, LONG_S, Load, Spawn, count, size, until_completed
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.servers import Server


@pytest.fixture
def forgetful(runtime_folder: Path, queue_name: str) -> Iterator[Server]:
    """A server that keeps nothing on disk."""
    server = Server("valkey", runtime_folder / queue_name[-8:])
    server.start()
    yield server
    server.stop()


async def test_a_server_that_forgets_its_scripts_all_the_time_costs_nothing(
    queue: Queue, client: Client, url: str, spawn: Spawn
) -> None:
    load = Load(queue, spawn, client, slots=4, lease_ms=2000, interval_ms=200)
    load.start(workers=2)

    async def flush() -> None:
        while True:
            await client.script_flush()
            await asyncio.sleep(0.05)

    flushing = asyncio.create_task(flush())
    await load.add(size(150, 2000))
    assert await load.finish() == 0
    await end_tasks(flushing)


async def test_a_busy_server_is_waited_for(forgetful: Server, queue_name: str) -> None:
    async def process(job: ActiveJob) -> str:
        await job.update_progress(1)
        return "done"

    forgetful.ask("CONFIG", "SET", "busy-reply-threshold", 50)
    blocker = connect(forgetful.url, timeout_s=20)
    killer = connect(forgetful.url)
    async with Queue(queue_name, forgetful.url) as queue, Worker(queue_name, process, forgetful.url):
        blocking: asyncio.Future[Any] = asyncio.ensure_future(blocker.eval("while true do end", 0))

        async def is_busy() -> bool:
            with contextlib.suppress(RedisError):
                await killer.ping()
                return False
            return True

        await wait_until(is_busy)
        adding = asyncio.create_task(queue.add("paint"))
        await asyncio.sleep(0.5)  # the busy time itself
        assert not adding.done()
        await killer.script_kill()
        await until_completed(queue, (await adding).id)
        await asyncio.wait([blocking])
        assert blocking.exception() is not None
    await blocker.aclose()
    await killer.aclose()


async def test_a_server_that_loads_its_file_is_waited_for(mortal: Server, lasting: Queue) -> None:
    async def process(job: ActiveJob) -> str:
        return "done"

    pipeline = lasting.client.pipeline(transaction=False)
    for number in range(20_000):
        pipeline.set(f"filler:{number}", "x")
    await pipeline.execute()
    async with Worker(lasting.name, process, mortal.url):
        first = await lasting.add("paint")
        await until_completed(lasting, first.id)
        mortal.kill()
        mortal.launch("--key-load-delay", "100", "--loading-process-events-interval-bytes", "1024")

        async def is_loading() -> bool:
            try:
                await lasting.client.get("filler:1")
            except RedisError as problem:
                return "loading" in str(problem).lower()
            return False

        await wait_until(is_loading)
        second = await lasting.add("paint")
        await until_completed(lasting, first.id, second.id)


async def test_a_server_that_comes_back_empty_is_worked_with_from_the_start(
    forgetful: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.queue.connection.REGISTER_AGAIN_S", 0.0)
    started, may_end = asyncio.Event(), asyncio.Event()

    async def process(job: ActiveJob) -> str:
        started.set()
        await may_end.wait()
        return "done"

    worker = Worker(queue_name, process, forgetful.url, concurrency=2, lease_ms=2000, interval_ms=100)
    async with Queue(queue_name, forgetful.url) as queue, Hub(queue) as hub, worker:
        held = await queue.add("paint", None, JobOptions(id="held"))
        await started.wait()
        waiting = await queue.add("paint", None, JobOptions(id="waiting", delay_ms=60_000))
        forgetful.kill()
        forgetful.start()
        may_end.set()
        fresh = await queue.add("paint", None, JobOptions(id="fresh"))
        await until_completed(queue, fresh.id)

        async def is_watched() -> bool:
            async with hub.watch() as watch:
                job = await queue.add("paint")
                with contextlib.suppress(Lagged, TimeoutError):
                    async with asyncio.timeout(2):
                        while (await anext(watch)).job != job.id:
                            pass
                        return True
            return False

        await wait_until(is_watched)
        for lost in (held, waiting):
            assert await queue.get_job(lost.id) is None, "unknown, not done"
        assert await queue.client.smembers("kargah:queues") == {queue_name.encode()}
        again = await queue.add("paint", None, JobOptions(id="held"))
        assert not again.duplicated
        await until_completed(queue, again.id)
        await check_queue(queue)


@pytest.mark.parametrize("how", ["CLIENT PAUSE", "SIGSTOP"])
async def test_a_pause_shorter_than_the_lease_stalls_nobody(mortal: Server, lasting: Queue, how: str) -> None:
    may_end = asyncio.Event()
    pause_s = size(1.0, 3.0)

    async def process(job: ActiveJob) -> None:
        await may_end.wait()

    ids = [(await lasting.add("paint")).id for _ in range(4)]
    lease_ms = round(pause_s * 1000 * 5 / 3)
    async with Worker(lasting.name, process, mortal.url, concurrency=4, lease_ms=lease_ms, interval_ms=100):

        async def are_active() -> bool:
            return await count(lasting, "active") == 4

        await wait_until(are_active)
        for _ in range(2):
            if how == "SIGSTOP":
                mortal.pause()
                await asyncio.sleep(pause_s)  # the pause itself
                mortal.resume()
            else:
                mortal.ask("CLIENT", "PAUSE", round(pause_s * 1000), "ALL")
            assert await count(lasting, "active") == 4
        may_end.set()
        await until_completed(lasting, *ids)
    for job_id in ids:
        assert [event.type for event in await lasting.get_history(job_id)] == ["added", "active", "completed"]


async def test_a_worker_whose_connections_are_killed_again_and_again_does_all_jobs(
    queue: Queue, client: Client, url: str
) -> None:
    draw = random.Random(3)
    jobs = size(200, 500)
    kills = 0

    async def process(job: ActiveJob) -> str:
        await job.update_progress(1)
        await asyncio.sleep(0.02)
        return "done"

    ids = [(await queue.add("paint")).id for _ in range(jobs - 20)]
    ids += [(await queue.add("paint", None, JobOptions(delay_ms=1000))).id for _ in range(20)]
    mine = await client.client_id()
    async with Worker(queue.name, process, url, concurrency=4, lease_ms=2000, interval_ms=100):
        while kills < 20:
            others = [each["id"] for each in await client.client_list() if each["id"] != str(mine)]
            if others:
                with contextlib.suppress(RedisError):  # it may be gone by itself
                    kills += await client.client_kill_filter(_id=draw.choice(others))
            await asyncio.sleep(0.05)
        await until_completed(queue, *ids, timeout_s=LONG_S)
    for job_id in ids:
        types = [event.type for event in await queue.get_history(job_id)]
        assert types.count("active") == types.count("completed") == 1


async def test_delayed_jobs_start_in_time_although_the_server_was_killed_meanwhile(
    mortal: Server, lasting: Queue
) -> None:
    async def process(job: ActiveJob) -> str:
        return "done"

    delay_ms = size(1500, 3000)
    async with Worker(lasting.name, process, mortal.url, concurrency=4):
        ids = [(await lasting.add("paint", None, JobOptions(delay_ms=delay_ms))).id for _ in range(20)]
        await asyncio.sleep(delay_ms / 3000)  # the time at which it dies
        mortal.kill()
        mortal.start()
        await until_completed(lasting, *ids)
    for job_id in ids:
        history = await lasting.get_history(job_id)
        assert [event.type for event in history] == ["added", "waiting", "active", "completed"]
        late_ms = history[2].at - history[0].at - delay_ms
        assert 0 <= late_ms <= 1000


async def test_an_outage_costs_no_cpu_few_lines_and_no_time_afterwards(
    mortal: Server, lasting: Queue, spawn: Spawn, runtime_folder: Path
) -> None:
    """One worker process is idle, one runs a job, one is started while the server is away."""
    for outage_s in (0.2, 1.0, 5.0, 12.0, 60.0) if IS_FULL else (3.0,):
        idle, busy, late = (f"{lasting.name}-{kind}-{round(outage_s * 10)}" for kind in ("idle", "busy", "late"))
        queues = [Queue(name, lasting.client) for name in (idle, busy, late)]
        logs = [runtime_folder / f"{name}.log" for name in (idle, busy, late)]
        workers = [spawn(name, to=mortal.url, log=log) for name, log in zip((idle, busy), logs, strict=False)]
        for queue in queues[:2]:
            await until_completed(queue, (await queue.add("work", {})).id)
        running = await queues[1].add("work", {"ms": round(outage_s * 1000) + 300, "chatty": True})

        async def is_asleep(queue: Queue = queues[1], job_id: str = running.id) -> bool:
            return (await queue.get_history(job_id))[-1].type == "milestone"

        await wait_until(is_asleep)
        used_s = [cpu_s(worker.pid) for worker in workers]
        loop = asyncio.get_running_loop()
        away_at = loop.time()
        mortal.kill()
        workers.append(spawn(late, to=mortal.url, log=logs[2]))
        await asyncio.sleep(outage_s)  # the outage itself
        shares = [(cpu_s(worker.pid) - used) / outage_s for worker, used in zip(workers, used_s, strict=False)]
        mortal.start()
        back_at = loop.time()
        jobs = [await queue.add("work", {}) for queue in (queues[0], queues[2])]
        await until_completed(queues[0], jobs[0].id)
        resumed_s = loop.time() - back_at
        await until_completed(queues[2], jobs[1].id)
        await until_completed(queues[1], running.id)
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        assert {await asyncio.to_thread(worker.wait, 10) for worker in workers} == {0}
        lines = [sum("loop_was_late" not in line for line in log.read_text().splitlines()) for log in logs]
        print(f"outage {outage_s} s: resumed in {resumed_s:.2f} s, CPU {shares}, {lines} lines")
        assert resumed_s <= 2
        assert max(lines) <= back_at + resumed_s - away_at + 2
        assert outage_s < 1 or max(shares) <= 0.05


def cpu_s(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def test_an_outage_holds_up_nobody_else_on_the_event_loop(mortal: Server, lasting: Queue) -> None:
    loop = asyncio.get_running_loop()
    started = asyncio.Event()
    latest_s, failure = 0.0, ""
    outage_s = size(3.0, 15.0)

    async def process(job: ActiveJob) -> str:
        nonlocal failure
        started.set()
        async with Queue(lasting.name, mortal.url, deadline_s=1.0) as queue:
            await asyncio.sleep(0.2)
            try:
                await queue.add("paint", None, JobOptions(delay_ms=100_000))
            except Exception as problem:
                failure = type(problem).__name__
        return "done"

    async def tick() -> None:
        nonlocal latest_s
        while True:
            due = loop.time() + 0.02
            await asyncio.sleep(0.02)
            latest_s = max(latest_s, loop.time() - due)

    async with Worker(lasting.name, process, mortal.url, lease_ms=3000):
        job = await lasting.add("paint")
        await started.wait()
        mortal.kill()
        ticking = asyncio.create_task(tick())
        await asyncio.sleep(outage_s)  # the outage itself
        await end_tasks(ticking)
        mortal.start()
        await until_completed(lasting, job.id)
    print(f"latest tick {latest_s * 1000:.0f} ms")
    assert failure == "OutcomeUnknown"
    assert latest_s <= 0.1
