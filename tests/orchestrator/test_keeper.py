"""The keeper process: which leases it renews, which it lets go, and how it lives and ends."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.asyncio import Redis, SSLConnection
from redis.asyncio.cluster import RedisCluster
from redis.credentials import UsernamePasswordCredentialProvider

from orchestrator.active_job import ActiveJob
from orchestrator.errors import InvalidOption
from orchestrator.keys import Keys
from orchestrator.queue import Queue
from orchestrator.scripts import Client, connect
from orchestrator.worker import Worker, keeper_process
from orchestrator.worker.keeper import MAX_NOTES, Keeper, Notes, how_to_connect
from tests.conftest import wait_until
from tests.lua.scene import LEASE_MS as SCENE_LEASE_MS
from tests.lua.scene import Scene
from tests.orchestrator.running import ended, run_one
from tests.servers import Server

LEASE_MS = 1000


@pytest.fixture
def keeper(client: Client, queue: Queue) -> Iterator[Keeper]:
    keeper = Keeper(client, queue.keys, LEASE_MS, 10_000)
    yield keeper
    keeper.close()


def renewals(keeper: Keeper) -> int:
    assert keeper._notes is not None
    return keeper._notes.counts()[0]


async def lease_end(scene: Scene, job_id: str) -> float | None:
    """When the lease of a job ends; None when it is not active."""
    score = await scene.client.zscore(f"{scene.prefix}active", job_id)
    return None if score is None else float(score)


# ── what it renews ───────────────────────────────────────────────────────────────────────────────────


async def test_it_renews_again_and_again_what_nobody_else_renews(scene: Scene, keeper: Keeper) -> None:
    claim = await scene.active("a")
    keeper.hold("a", claim.lease, time.monotonic(), 0.0)
    seen: set[float | None] = set()

    async def was_renewed_often() -> bool:
        seen.add(await lease_end(scene, "a"))
        return len(seen) > 3

    await wait_until(was_renewed_often)
    await wait_until(lambda: renewals(keeper) >= 3)  # it counts one once it has the answer


async def test_it_leaves_a_lease_alone_that_the_worker_renews_itself(scene: Scene, keeper: Keeper) -> None:
    claims = [await scene.active("mine"), await scene.active("other")]
    for claim in claims:
        keeper.hold(claim.job.id, claim.lease, time.monotonic(), 0.0)
    before = await lease_end(scene, "mine")

    def other_was_renewed_often() -> bool:
        keeper.renewed(claims[0].lease, time.monotonic())
        return renewals(keeper) >= 3

    await wait_until(other_was_renewed_often)
    assert await lease_end(scene, "mine") == before


async def test_it_lets_go_of_a_job_whose_time_is_over_and_keeps_the_others(scene: Scene, keeper: Keeper) -> None:
    now = time.monotonic()
    for job_id, until in (("late", now - 0.1), ("other", now + 1000)):
        keeper.hold(job_id, (await scene.active(job_id)).lease, now - 1, until)
    before = await lease_end(scene, "late")
    await wait_until(lambda: renewals(keeper) >= 3)
    assert await lease_end(scene, "late") == before
    assert await lease_end(scene, "other") != before


async def test_it_renews_a_claim_whose_answer_the_worker_has_not_read_yet(scene: Scene, keeper: Keeper) -> None:
    await scene.active("a")
    before = await lease_end(scene, "a")
    other = await scene.active("b")
    keeper.hold("b", other.lease, time.monotonic(), 0.0)
    with keeper.calling("w:0"):  # the scene's lane, whose last claim is b

        async def both_ways() -> bool:
            return renewals(keeper) >= 4

        await wait_until(both_ways)
    assert await lease_end(scene, "a") == before, "of an earlier call, and not noted"
    reached = renewals(keeper)
    keeper.drop(other.lease)
    third = await scene.active("c")
    with keeper.calling("w:0"):
        await wait_until(lambda: renewals(keeper) >= reached + 2)
    assert (await lease_end(scene, "c") or 0) < (await lease_end(scene, "a") or 0), third


async def test_an_old_note_renews_nothing_that_was_finished_or_belongs_to_another(scene: Scene, keeper: Keeper) -> None:
    finished = await scene.completed("finished")
    again = await scene.active("again")
    other = await scene.active("other")
    for job_id, lease in (("finished", finished.lease), ("again", "stale"), ("other", other.lease)):
        keeper.hold(job_id, lease, time.monotonic() - 1, 0.0)
    before = await lease_end(scene, "again")
    await wait_until(lambda: renewals(keeper) >= 3)
    assert await lease_end(scene, "finished") is None
    assert await lease_end(scene, "again") == before
    assert again.lease != "stale"


async def test_it_lets_go_of_a_canceled_job_whose_grace_is_over(client: Client, scene: Scene) -> None:
    keeper = Keeper(client, scene.queue.keys, LEASE_MS, 0)
    try:
        for job_id in ("canceled", "other"):
            keeper.hold(job_id, (await scene.active(job_id)).lease, time.monotonic(), 0.0)
        await scene.queue.cancel("canceled")
        before = await lease_end(scene, "canceled")
        await wait_until(lambda: renewals(keeper) >= 3)
        assert await lease_end(scene, "canceled") == before
    finally:
        keeper.close()


async def test_it_goes_on_after_an_outage(scene: Scene, keeper: Keeper, url: str) -> None:
    claim = await scene.active("a")
    keeper.hold("a", claim.lease, time.monotonic(), 0.0)
    await wait_until(lambda: renewals(keeper) >= 1)
    killer: Any = connect(url)
    for _ in range(3):
        await killer.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await killer.execute_command("FUNCTION", "FLUSH")
        reached = renewals(keeper)
        await wait_until(lambda so_far=reached: renewals(keeper) > so_far)  # type: ignore[misc]
    await killer.aclose()


# ── how it lives ─────────────────────────────────────────────────────────────────────────────────────


def memory_map(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


async def test_it_is_a_bare_interpreter_until_a_lease_is_in_danger(client: Client, queue: Queue) -> None:
    keeper = Keeper(client, queue.keys, keeper_process.SHORT_LEASE_MS, 10_000)
    try:
        with keeper.calling("w:0"):
            assert keeper._process is None, "no job, no process"
        keeper.hold("a", "1-a.1", time.monotonic(), 0.0)
        pid = keeper.pid
        assert pid is not None
        await wait_until(lambda: "memfd:kargah-keeper" in memory_map(pid))
        for _ in range(4 * keeper_process.LOOKS_PER_LEASE // 10):  # it looks three times a second
            keeper.renewed("1-a.1", time.monotonic())
            await asyncio.sleep(0.2)
        assert "_socket" not in memory_map(pid)
        (peak_kb,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        assert int(peak_kb) < 15_000
    finally:
        keeper.close()


async def test_credentials_are_on_no_command_line_and_in_no_environment(queue: Queue) -> None:
    client: Any = Redis(password="s3cret", host="127.0.0.1", port=1)
    keeper = Keeper(client, queue.keys, LEASE_MS, 1000)
    try:
        keeper.hold("a", "1-a.1", time.monotonic(), 0.0)
        for what in ("cmdline", "environ"):
            assert b"s3cret" not in Path(f"/proc/{keeper.pid}/{what}").read_bytes()
    finally:
        keeper.close()
        await client.aclose()


async def test_one_that_died_is_replaced(scene: Scene, keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.worker.keeper.START_AGAIN_S", 0.1)
    claim = await scene.active("a")
    keeper.hold("a", claim.lease, time.monotonic(), 0.0)
    first = keeper.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)

    def is_replaced() -> bool:
        keeper.look_after()
        return keeper.pid != first

    await wait_until(is_replaced)
    await wait_until(lambda: renewals(keeper) >= 1)


async def test_it_ends_when_the_pipe_does(keeper: Keeper) -> None:
    keeper.hold("a", "1-a.1", time.monotonic(), 0.0)
    process = keeper._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    await wait_until(lambda: process.poll() is not None)
    assert process.returncode == 0


@pytest.mark.parametrize("way", ["stopped", "running", "dead"])
def test_it_sees_whether_a_process_is_stopped(way: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        if way == "stopped":
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        if way == "dead":
            process.kill()
            process.wait()
        assert keeper_process.is_stopped(process.pid) is (way != "running")
        process.kill()


def test_notes_that_do_not_fit_are_not_written_and_places_are_used_again() -> None:
    notes = Notes(size=3)
    try:
        first, second, third = (notes.write(keeper_process.HELD, 1.0, 0.0, f"j{n}", "1-x.1") for n in range(3))
        assert notes.write(keeper_process.HELD, 1.0, 0.0, "j4", "1-x.1") == 0
        notes.strike(second)
        notes.strike(0)
        assert notes.write(keeper_process.HELD, 1.0, 0.0, "j" * 129, "1-x.1") == 0
        assert notes.write(keeper_process.HELD, 2.0, 3.0, "é", "l") == second
        notes.strike(first)
        notes.renew(third, 9.0)
        notes.renew(0, 9.0)
        assert keeper_process.read_notes(notes._table) == [
            keeper_process.Note(keeper_process.HELD, 2.0, 3.0, "é".encode(), b"l"),
            keeper_process.Note(keeper_process.HELD, 9.0, 0.0, b"j2", b"1-x.1"),
        ]
    finally:
        notes.close()


def test_a_note_costs_a_few_microseconds(client: Client, queue: Queue) -> None:
    notes = Notes(MAX_NOTES)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(1000):
            notes.strike(
                notes.write(keeper_process.HELD, 1.0, 0.0, "0123456789abcdefghjkmnpqrs", "123-abcdefghijklmnop.1")
            )
        best = min(best, time.perf_counter() - began)
    notes.close()
    assert best / 1000 < 20e-6


# ── how it connects ──────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def kept_by(client: Any, keys: Keys) -> AsyncIterator[Keeper]:
    keeper = Keeper(client, keys, LEASE_MS, 10_000)
    try:
        yield keeper
    finally:
        keeper.close()


async def test_a_given_client_with_a_password_or_a_provider_is_enough(tmp_path: Path, queue_name: str) -> None:
    server = Server("valkey", tmp_path)
    server.start()
    plain = redis.Redis.from_url(server.url)
    plain.config_set("requirepass", "s3cret")
    plain.close()
    provider = UsernamePasswordCredentialProvider(password="s3cret")
    try:
        for arguments in ({"password": "s3cret"}, {"credential_provider": provider}):
            client: Any = Redis(unix_socket_path=str(server.socket), decode_responses=False, **arguments)
            scene = Scene(Queue(f"{queue_name}-{len(arguments)}-{next(iter(arguments))}", client))
            claim = await scene.active("a")
            async with kept_by(client, scene.queue.keys) as keeper:
                keeper.hold("a", claim.lease, time.monotonic(), 0.0)
                await wait_until(lambda kept=keeper: renewals(kept) >= 1)  # type: ignore[misc]
            await client.aclose()
    finally:
        server.stop()


@pytest.mark.parametrize("server", ["valkey-cluster"], indirect=True)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_cluster_and_tcp_work_as_well(server: Server, scene: Scene, client: Client) -> None:
    claim = await scene.active("a")
    cluster: Any = RedisCluster.from_url(server.url)
    several: Any = connect(server.url)
    several.seeds = [("127.0.0.1", server.port)]
    assert how_to_connect(several)["kind"] == how_to_connect(cluster)["kind"] == "cluster"
    for each in (client, cluster, several):
        async with kept_by(each, scene.queue.keys) as keeper:
            keeper.hold("a", claim.lease, time.monotonic(), 0.0)
            await wait_until(lambda kept=keeper: renewals(kept) >= 1)  # type: ignore[misc]
    await cluster.aclose()
    await several.aclose()


def test_tls_keeps_what_was_asked_of_it() -> None:
    client = connect("rediss://me:s3cret@localhost:6380/3?ssl_cert_reqs=none&ssl_ca_certs=/ca.pem")
    how = how_to_connect(client)
    twin = keeper_process.connect(how, 1.0)
    assert twin.connection_pool.connection_class is redis.SSLConnection
    assert client.connection_pool.connection_class is SSLConnection
    connection = twin.connection_pool.make_connection()
    assert (connection.host, connection.port, connection.db) == ("localhost", 6380, 3)
    assert (connection.username, connection.password, connection.ca_certs) == ("me", "s3cret", "/ca.pem")
    assert connection.cert_reqs.name == "CERT_NONE"


async def test_a_kind_of_connection_that_it_does_not_know_means_no_keeper_and_no_harm(queue: Queue, url: str) -> None:
    class Own(redis.asyncio.UnixDomainSocketConnection):
        pass

    pool = redis.asyncio.ConnectionPool.from_url(url)
    pool.connection_class = Own
    client = Redis.from_pool(pool)

    async def process(job: ActiveJob) -> str:
        return job.id

    worker = Worker(queue.name, process, client)
    async with worker:
        job = await queue.add("paint")
        (job,) = await ended(queue, job.id)
        assert worker._keeper is not None
        assert worker._keeper.pid is None
    assert job.state == "completed"
    await client.aclose()


@pytest.mark.parametrize("executable", ["", "/usr/bin/uwsgi"])
def test_a_program_that_is_no_interpreter_is_not_started(
    client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    keeper = Keeper(client, queue.keys, LEASE_MS, 1000)
    keeper.hold("a", "1-a.1", time.monotonic(), 0.0)
    assert keeper.pid is None
    keeper.drop("1-a.1")
    keeper.close()


async def test_it_is_on_by_default_and_may_be_turned_off(queue: Queue, url: str) -> None:
    async def process(job: ActiveJob) -> str:
        return job.id

    assert (await run_one(queue, url, process, keeper=False)).state == "completed"
    assert Worker(queue.name, process, url, keeper=False)._keeper is None
    assert Worker(queue.name, process, url)._keeper is not None
    no_truth: Any = "yes"
    with pytest.raises(InvalidOption):
        Worker(queue.name, process, url, keeper=no_truth)


assert SCENE_LEASE_MS > LEASE_MS, "a renewal by the keeper is seen as an earlier end of the lease"
