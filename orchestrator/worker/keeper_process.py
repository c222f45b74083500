"""The keeper: a small process that renews the leases of a worker whose event loop is late.

Started by path, not as a part of the package, as `keeper_process.py NOTES-FD WORKER-PID`: it needs nothing of ours and
nothing of the user's, and of redis-py only when a lease is in danger. Until then it is a bare interpreter (9 MB) that
looks at the worker's notes sixteen times in a lease.

It renews a lease that has not been renewed for half of its time, but not

* when the worker is gone: its end of our standard input is closed, or we have another parent;
* while the worker is stopped (SIGSTOP, a debugger): then the job shall go to another worker;
* when the job's attempt has passed its timeout and grace.

The notes are memory that both processes map: the worker can write them without a system call, and before it starts a
processor that never lets any of its threads run again.
"""

import json
import mmap
import os
import select
import struct
import sys
import time
from typing import Any, NamedTuple

HEAD = struct.Struct("<I4xQQ")
"""How many notes to look at (the worker writes it); renewals and failed tries so far (the keeper writes them)."""
RENEWALS_AT = 8
COUNTS = struct.Struct("<QQ")
NOTE = struct.Struct("<BBH4xdd128s128s")
"""Kind, lengths of the two texts, when it was last renewed, when to let it go (0 = never), id or lane, lease."""
SINCE_AT = 8
NO_NOTE, HELD, CALLING = 0, 1, 2
MAX_TEXT_BYTES = 128

LOOKS_PER_LEASE = 16
"""A lease of 1 s: seen as late after at most 0.57 s, tried for 0.25 s, and there is time for a second try at 0.88 s."""
SHORT_LEASE_MS = 5000
MAX_AT_ONCE = 200
COMPLAIN_EVERY_S = 60.0


class Note(NamedTuple):
    """What the worker says of a job that it holds, or of a lane whose call is under way. Times are monotonic, in s."""

    kind: int
    since: float
    until: float
    name: bytes
    lease: bytes


def read_notes(table: mmap.mmap) -> list[Note]:
    """All notes. One that is being written is read as nonsense, which renews nothing."""
    count = min(HEAD.unpack_from(table)[0], (len(table) - HEAD.size) // NOTE.size)
    notes = []
    for number in range(count):
        place = HEAD.size + number * NOTE.size
        if table[place] != NO_NOTE:
            kind, name_size, lease_size, since, until, name, lease = NOTE.unpack_from(table, place)
            notes.append(Note(kind, since, until, name[:name_size], lease[:lease_size]))
    return notes


class Keeper:
    """Looks at the notes, and renews what is late."""

    def __init__(self, table: mmap.mmap, worker_pid: int, config: dict[str, Any]) -> None:
        self._table = table
        self._worker_pid = worker_pid
        self._config = config
        self._lease_s = config["lease_ms"] / 1000
        self._renewed_at: dict[bytes, float] = {}  # by lease or lane: what we did, which the worker does not know
        self._client: Any = None
        self._complained_at = -COMPLAIN_EVERY_S

    def run(self) -> None:
        """Until the worker is gone."""
        if self._config["lease_ms"] < SHORT_LEASE_MS:
            self._prepare()  # imports and a handshake would take too long once it is needed
        while not self._is_orphaned(self._lease_s / LOOKS_PER_LEASE):
            try:
                self._look()
            except Exception as problem:  # Redis is away, most likely; the next look tries again
                self._complain(problem)

    def _is_orphaned(self, wait_s: float) -> bool:
        readable, _, _ = select.select([0], [], [], wait_s)
        return bool(readable and not os.read(0, 4096)) or os.getppid() != self._worker_pid

    def _look(self) -> None:
        now = time.monotonic()
        notes = read_notes(self._table)
        self._forget({note.lease or note.name for note in notes})
        ages = [now - max(note.since, self._renewed_at.get(note.lease or note.name, 0.0)) for note in notes]
        if self._client is None and max(ages, default=0.0) > self._lease_s / 4:
            self._connect()
        late = [note for note, age in zip(notes, ages, strict=True) if age > self._lease_s / 2]
        if late and not is_stopped(self._worker_pid):
            self._renew(late, now)

    def _renew(self, late: list[Note], now: float) -> None:
        overdue = any(note.until and now > note.until for note in late)
        held = [(note.name, note.lease) for note in late if note.kind == HELD and not (note.until and now > note.until)]
        if not overdue:  # else these jobs, which nobody has begun, wait for a worker that may never go on
            for note in late:
                if note.kind == CALLING:
                    held += self._claimed(note.name)
                    self._renewed_at[note.name] = now
        for start in range(0, len(held), MAX_AT_ONCE):
            self._extend(held[start : start + MAX_AT_ONCE], now)

    def _claimed(self, lane: bytes) -> list[tuple[bytes, bytes]]:
        """What a lane was given by an answer that the worker has not read yet."""
        stored: bytes = self._client.get(self._config["answers"].encode() + lane) or b""
        return claims_of(stored)

    def _extend(self, held: list[tuple[bytes, bytes]], now: float) -> None:
        config = self._config
        parts = [part for pair in held for part in pair]
        call = (2, config["meta"], config["none"], config["lease_ms"], config["cancel_ms"], *parts)
        try:
            replies = self._client.fcall(config["function"], *call)
        except Exception as problem:
            if "Function not found" not in str(problem):
                raise
            library, function = config["spare"]
            self._client.function_load(library, replace=True)
            replies = self._client.fcall(function, *call)
        self._renewed_at.update((lease, now) for _, lease in held)
        self._count(sum(reply != b"LEASE_LOST" for reply in replies), 0)

    def _connect(self) -> None:
        self._client = connect(self._config["connection"], max(self._lease_s / 4, 0.2))

    def _prepare(self) -> None:
        self._connect()
        try:
            self._client.ping()
        except Exception as problem:
            self._complain(problem)

    def _forget(self, noted: set[bytes]) -> None:
        for lease in self._renewed_at.keys() - noted:
            del self._renewed_at[lease]

    def _count(self, renewals: int, failures: int) -> None:
        before = COUNTS.unpack_from(self._table, RENEWALS_AT)
        COUNTS.pack_into(self._table, RENEWALS_AT, before[0] + renewals, before[1] + failures)

    def _complain(self, problem: Exception) -> None:
        self._count(0, 1)
        if time.monotonic() - self._complained_at >= COMPLAIN_EVERY_S:
            self._complained_at = time.monotonic()
            print(f"kargah keeper: cannot renew: {type(problem).__name__}: {problem}", file=sys.stderr)  # noqa: T201


def claims_of(stored: bytes) -> list[tuple[bytes, bytes]]:
    """Ids and leases of the claims in a lane's remembered answer, as `lua/includes/lane.lua` writes it."""
    token, *_ = stored.split(b" ", 1)
    ids = stored.split(b"\n")[-1].split()
    return [(job_id, b"%s.%d" % (token, number)) for number, job_id in enumerate(ids, 1)]


def connect(how: dict[str, Any], timeout_s: float) -> Any:
    """A client like the worker's own. One try, of limited length: the next look tries again."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    arguments = how["arguments"] | {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    if how["kind"] == "cluster":
        from redis.cluster import ClusterNode, RedisCluster

        node: Any = ClusterNode
        nodes = [node(host, port) for host, port in how["nodes"]]
        return RedisCluster(startup_nodes=nodes, **arguments)
    arguments["retry"] = Retry(NoBackoff(), 0)
    kinds = {"tcp": redis.Connection, "tls": redis.SSLConnection, "unix": redis.UnixDomainSocketConnection}
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=kinds[how["kind"]], **arguments))


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or a debugger, or dead."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - pathlib would be an import more
            state = stat.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        if os.path.isdir("/proc/self"):  # noqa: PTH112
            return True
        import subprocess

        command = ["ps", "-o", "state=", "-p", str(pid)]
        state = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip() or "X"
    return state[0] in "TtZX"


def main() -> None:
    """Keep the leases of the worker that started us."""
    line = b""
    while not line.endswith(b"\n"):
        if not (more := os.read(0, 65536)):
            return
        line += more
    config = json.loads(line)
    sys.path[:] = config["import_path"]
    with mmap.mmap(int(sys.argv[1]), 0) as table:
        Keeper(table, int(sys.argv[2]), config).run()


if __name__ == "__main__":
    main()
