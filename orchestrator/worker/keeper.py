"""The worker's side of its keeper: what is written down for it, when it is started, and how it ends."""

import contextlib
import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lua
from orchestrator.keys import Keys
from orchestrator.log import get_logger
from orchestrator.scripts import Client
from orchestrator.worker import keeper_process
from orchestrator.worker.keeper_process import CALLING, COUNTS, HEAD, HELD, MAX_TEXT_BYTES, NO_NOTE, NOTE, SINCE_AT

log = get_logger("worker")

MAX_NOTES = 16_384
START_AGAIN_S = 5.0
_POOL_KINDS = {"Connection": "tcp", "SSLConnection": "tls", "UnixDomainSocketConnection": "unix"}
_ARGUMENTS = frozenset({"host", "port", "path", "db", "username", "password", "protocol", "client_name"})
_DOUBLE = struct.Struct("<d")


class Notes:
    """What the keeper must know, in memory that both processes map. A note costs about a microsecond."""

    def __init__(self, size: int = MAX_NOTES) -> None:
        self.fd = _anonymous_file(HEAD.size + size * NOTE.size)
        self._table = mmap.mmap(self.fd, 0)
        self._size = size
        self._used = 0
        self._free: list[int] = []

    def write(self, kind: int, since: float, until: float, name: str, lease: str = "") -> int:
        """Add a note; returns its place, 0 if there is none left or the texts do not fit."""
        texts = name.encode(), lease.encode()
        if max(map(len, texts)) > MAX_TEXT_BYTES or (not self._free and self._used == self._size):
            return 0
        if self._free:
            place = self._free.pop()
        else:
            place = HEAD.size + self._used * NOTE.size
            self._used += 1
            self._table[0:4] = self._used.to_bytes(4, "little")
        NOTE.pack_into(self._table, place, kind, len(texts[0]), len(texts[1]), since, until, *texts)
        return place

    def renew(self, place: int, since: float) -> None:
        """Say when the job of this note was last renewed."""
        if place:
            self._table[place + SINCE_AT : place + SINCE_AT + 8] = _DOUBLE.pack(since)

    def show(self, place: int, kind: int) -> None:
        """Let a note be seen, or hide it (`NO_NOTE`) and keep its place."""
        if place and not self._table.closed:
            self._table[place] = kind

    def strike(self, place: int) -> None:
        """Take a note back."""
        if place:
            self.show(place, NO_NOTE)
            self._free.append(place)

    def counts(self) -> tuple[int, int]:
        """How often the keeper renewed a lease, and how often it could not."""
        renewals, failures = COUNTS.unpack_from(self._table, keeper_process.RENEWALS_AT)
        return renewals, failures

    def close(self) -> None:
        """Nothing is written after this."""
        self._table.close()
        os.close(self.fd)


class Keeper:
    """A keeper process for one worker: started with its first job, started again when it dies, ended with the worker.

    Source: our own; dramatiq#692 tells what happens without one.
    """

    def __init__(self, client: Client, keys: Keys, lease_ms: int, cancel_ms: int) -> None:
        self._client = client
        self._keys = keys
        self._lease_ms = lease_ms
        self._cancel_ms = cancel_ms
        self._notes: Notes | None = None
        self._places: dict[str, int] = {}  # by lease
        self._lanes: dict[str, _Calling] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._may_start_at = 0.0
        self._told = 0, 0

    @property
    def pid(self) -> int | None:
        """The process, once there is one."""
        return None if self._process is None else self._process.pid

    # ── what it must know ────────────────────────────────────────────────────────────────────────────

    def calling(self, lane: str) -> "_Calling":
        """Entered while a call of this lane is under way; its answer may hold a job before the worker can read it."""
        if lane not in self._lanes:
            self._lanes[lane] = _Calling(self._open(), lane)
        return self._lanes[lane]

    def hold(self, job_id: str, lease: str, since: float, until: float) -> None:
        """A job begins, its lease whole at `since`; to be let go at `until` (0 = never). Both are monotonic."""
        self._places[lease] = self._open().write(HELD, since, until, job_id, lease)
        if self._process is None:
            self._start()

    def renewed(self, lease: str, since: float) -> None:
        """The worker renewed a lease itself."""
        self._open().renew(self._places.get(lease, 0), since)

    def drop(self, lease: str) -> None:
        """The job's end is recorded."""
        self._open().strike(self._places.pop(lease, 0))

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────

    def look_after(self) -> None:
        """Start the process again if it died, and tell in the log what it had to do."""
        if self._process is None or self._notes is None:
            return
        if self._process.poll() is not None:
            self._start()
        counts = self._notes.counts()
        if counts != self._told:
            log.warning("worker.loop_was_late", renewals=counts[0], failures=counts[1],
                        hint="a processor blocks the event loop; the keeper renewed the leases")  # fmt: skip
            self._told = counts

    def close(self) -> None:
        """End the process; it has nothing to finish."""
        if self._process is not None:
            self._end(self._process)
            self._process = None
        if self._notes is not None:
            self._notes.close()
            self._notes = None
            self._lanes.clear()

    def _open(self) -> Notes:
        if self._notes is None:
            self._notes = Notes()
        return self._notes

    def _start(self) -> None:
        if time.monotonic() < self._may_start_at:
            return
        self._may_start_at = time.monotonic() + START_AGAIN_S
        if self._process is not None:
            log.warning("keeper.died", status=self._process.returncode)
            self._end(self._process)
        try:
            self._process = self._spawn(self._open())
        except (OSError, ValueError) as problem:
            log.warning("keeper.unavailable", problem=problem)
            self._may_start_at = float("inf") if isinstance(problem, ValueError) else self._may_start_at

    def _spawn(self, notes: Notes) -> "subprocess.Popen[bytes]":
        """Start the process, in a session of its own: a signal from the terminal is for the worker alone."""
        if getattr(sys, "frozen", False) or not Path(sys.executable or "").name.startswith(("python", "pypy")):
            raise ValueError("there is no Python interpreter to run it")
        config = self._config()
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(keeper_process.__file__)), str(notes.fd), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[notes.fd],
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(config)
            process.stdin.flush()
        return process

    def _config(self) -> bytes:
        """Goes through the pipe: arguments and environment can be read by others, and this has credentials."""
        spare = lua.library("extend_locks")
        config = {
            "connection": how_to_connect(self._client),
            "function": lua.library().function("extend_locks"),
            "spare": (spare.text, spare.function("extend_locks")),
            "meta": self._keys.meta,
            "none": self._keys.none,
            "answers": self._keys.prefix + "answer:",
            "lease_ms": self._lease_ms,
            "cancel_ms": self._cancel_ms,
            "import_path": [str(place) for place in sys.path],
        }
        return json.dumps(config).encode() + b"\n"

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        process.kill()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


class _Calling:
    """A lane's note, seen while it is entered. That happens for every call, so only nine bytes are written."""

    __slots__ = ("_notes", "_place")

    def __init__(self, notes: Notes, lane: str) -> None:
        self._notes = notes
        self._place = notes.write(NO_NOTE, 0.0, 0.0, lane)

    def __enter__(self) -> None:
        self._notes.renew(self._place, time.monotonic())
        self._notes.show(self._place, CALLING)

    def __exit__(self, *problem: object) -> None:
        self._notes.show(self._place, NO_NOTE)


def how_to_connect(client: Any) -> dict[str, Any]:
    """The connection of a client, as JSON can say it. Raises `ValueError` for a kind that the keeper does not know."""
    if hasattr(client, "nodes_manager"):  # redis-py's
        addresses = [(node.host, node.port) for node in client.nodes_manager.startup_nodes.values()]
        return _cluster(addresses, client.connection_kwargs["connection_class"], client.connection_kwargs)
    pool = client.connection_pool
    seeds = getattr(client, "seeds", getattr(client, "_seeds", None))
    if seeds is not None:  # ours: a client of any node, that knows several
        return _cluster([tuple(seed) for seed in seeds], pool.connection_class, pool.connection_kwargs)
    kind = _POOL_KINDS.get(pool.connection_class.__name__)
    if kind is None:
        raise ValueError(f"connections of {pool.connection_class.__name__} are not known to the keeper")
    return {"kind": kind, "arguments": _plain(pool.connection_kwargs)}


def _cluster(nodes: list[Any], connection_class: type, arguments: dict[str, Any]) -> dict[str, Any]:
    is_tls = connection_class.__name__ == "SSLConnection"
    plain = {name: value for name, value in _plain(arguments).items() if name not in ("host", "port", "db", "path")}
    return {"kind": "cluster", "nodes": nodes, "arguments": plain | {"ssl": is_tls}}


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that say where and who; a provider of credentials is asked for its present ones."""
    plain = {
        name: value
        for name, value in arguments.items()
        if isinstance(value, str | bytes | int) and (name in _ARGUMENTS or name.startswith("ssl_"))
    }
    provider = arguments.get("credential_provider")
    if provider is not None:
        username, *password = provider.get_credentials()
        plain |= {"username": username, "password": password[0]} if password else {"password": username}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in plain.items()}


def _anonymous_file(size: int) -> int:
    """A file without a name, in memory where the system can; it takes only as much as is written."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("kargah-keeper")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.truncate(fd, size)
    return fd
