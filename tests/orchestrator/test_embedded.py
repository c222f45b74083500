"""The embedded server: its socket, its locks, its options, and what is refused."""

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from orchestrator.embedded import MAX_SOCKET_BYTES, EmbeddedServer, check_server, redis_url, socket_path, socket_url
from orchestrator.errors import InvalidOption, StartFailed
from orchestrator.settings import Settings


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> "Any":
    """A short folder in place of /tmp, so that nothing is left there."""
    with tempfile.TemporaryDirectory(prefix="kt-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@contextlib.asynccontextmanager
async def started(server: EmbeddedServer) -> AsyncIterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(server.command(), pass_fds=[server.lock_fd], stdout=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(20):
            while not await server.is_ready():
                assert process.poll() is None, "the server ended"
                await asyncio.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.asynccontextmanager
async def connected(url: str) -> "AsyncIterator[redis.asyncio.Redis]":
    client = redis.asyncio.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


def test_the_socket_is_short_however_deep_the_data_folder_lies(temporary: Path) -> None:
    path = socket_path(Path("/" + "/".join(["deep"] * 60)))
    assert len(os.fsencode(path)) <= MAX_SOCKET_BYTES
    assert path != socket_path(Path("/other"))


def test_a_temporary_folder_that_is_too_long_for_a_socket_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * 100)
    with pytest.raises(StartFailed, match="set TMPDIR to a shorter folder"):
        socket_path(Path("/data"))


def test_a_named_server_is_used_instead_of_the_embedded_one(tmp_path: Path) -> None:
    assert redis_url(Settings(redis_url="redis://elsewhere:6379")) == "redis://elsewhere:6379"
    assert redis_url(Settings(data_dir=tmp_path)) == socket_url(tmp_path)


def test_the_socket_s_folder_is_private_and_a_stranger_s_is_refused(temporary: Path, tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        folder = server.socket.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()
    folder.mkdir(mode=0o755)
    with pytest.raises(StartFailed, match="not a private folder"), EmbeddedServer(tmp_path):
        pass


def test_one_data_folder_has_one_supervisor(temporary: Path, tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path):
        with (
            pytest.raises(StartFailed, match=f"in use by another `kargah up` .pid {os.getpid()}."),
            EmbeddedServer(tmp_path),
        ):
            pass
    with EmbeddedServer(tmp_path):
        pass


def test_a_data_folder_that_cannot_be_made_is_named(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartFailed, match="set KARGAH_DATA_DIR"), EmbeddedServer(tmp_path / "file" / "data"):
        pass


async def test_what_was_written_survives_a_stop_and_a_kill(temporary: Path, tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "a folder") as server:
        for key, end in (("one", signal.SIGTERM), ("two", signal.SIGKILL), ("three", signal.SIGTERM)):
            async with started(server) as process, connected(server.url) as client:
                await check_server(client)
                await client.set(key, "kept")
                process.send_signal(end)
                await asyncio.to_thread(process.wait)
        async with started(server), connected(server.url) as client:
            assert await client.mget("one", "two", "three") == [b"kept"] * 3


async def test_a_torn_last_entry_of_the_file_does_not_keep_the_server_from_starting(
    temporary: Path, tmp_path: Path
) -> None:
    with EmbeddedServer(tmp_path) as server:
        async with started(server) as process, connected(server.url) as client:
            await client.set("whole", "kept")
            await client.set("torn", "x" * 100)
            process.terminate()
            await asyncio.to_thread(process.wait)
        (newest,) = (tmp_path / "valkey" / "appendonlydir").glob("*.incr.aof")
        os.truncate(newest, newest.stat().st_size - 50)
        async with started(server), connected(server.url) as client:
            assert await client.mget("whole", "torn") == [b"kept", None]


async def test_a_server_that_outlived_its_supervisor_is_stopped_and_its_data_kept(
    temporary: Path, tmp_path: Path
) -> None:
    code = (
        "import subprocess, sys, pathlib; from orchestrator.embedded import EmbeddedServer\n"
        "import asyncio\n"
        "with EmbeddedServer(pathlib.Path(sys.argv[1])) as server:\n"
        "    asyncio.run(server.end_survivor(print))\n"
        "    print(subprocess.Popen(server.command(), pass_fds=[server.lock_fd], stdout=2).pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert supervisor.stdout is not None
    with supervisor:
        survivor = int(supervisor.stdout.readline())
        async with connected(socket_url(tmp_path)) as client, asyncio.timeout(20):
            while True:
                with contextlib.suppress(redis.exceptions.RedisError):
                    await client.set("key", "kept")
                    break
        supervisor.kill()
    said: list[str] = []
    with EmbeddedServer(tmp_path) as server:
        await server.end_survivor(said.append)
        assert said == ["a server of an earlier start still runs; asking it to save and stop"]
        assert not Path(f"/proc/{survivor}/exe").exists()
        async with started(server), connected(server.url) as client:
            assert await client.get("key") == b"kept"


async def test_a_survivor_that_does_not_stop_is_an_error_that_says_where(temporary: Path, tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        holder = subprocess.Popen(["sleep", "60"], pass_fds=[server.lock_fd])
        await server.end_survivor(print)  # takes the lock, which the holder shares
    try:
        with EmbeddedServer(tmp_path) as server:
            with pytest.raises(StartFailed, match="fuser"):
                await server.end_survivor(print, timeout_s=0.3)
    finally:
        holder.kill()
        holder.wait()


async def test_a_server_that_evicts_is_refused(temporary: Path, tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        async with started(server), connected(server.url) as client:
            await client.config_set("maxmemory-policy", "allkeys-lru")
            with pytest.raises(InvalidOption, match="maxmemory-policy is allkeys-lru"):
                await check_server(client)


async def test_a_server_that_is_too_old_is_refused() -> None:
    class Old:
        async def info(self) -> dict[str, Any]:
            return {"redis_version": "6.2.14", "maxmemory_policy": "noeviction"}

    with pytest.raises(InvalidOption, match=r"Redis 6\.2\.14; 7\.0 or newer"):
        await check_server(Old())  # type: ignore[arg-type]
