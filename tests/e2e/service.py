"""A whole service for a test: `kargah up` in a folder of its own, and hands to hurt it with."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from orchestrator import signing_secret
from orchestrator.client import Client
from orchestrator.settings import Settings

START_S = 120.0
STOP_S = 60.0
T = TypeVar("T")

WORDS = {"valkey": "valkey-server", "api": "-m orchestrator.api", "worker": "-m workers", "relay": "-m webhooks"}


class Service:
    """`kargah up`, from start to stop. `url` is where it answers; `log` is all that it has printed."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self.data_dir = data_dir
        self.url = ""
        self._settings = settings
        self._log = data_dir.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def secret(self) -> str:
        """The secret that signs its webhooks."""
        return signing_secret.load(Settings(data_dir=self.data_dir))

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to be of this service, and nothing of the machine's own settings."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("KARGAH_")}
        port = self.url.rpartition(":")[2] or "0"
        return (
            inherited | {"KARGAH_DATA_DIR": str(self.data_dir), "KARGAH_PORT": port, "COLUMNS": "300"} | self._settings
        )

    def start(self) -> None:
        """Start, and wait until it says that everything is ready."""
        with self._log.open("ab") as log:
            begin = log.tell()
            command = [sys.executable, "-m", "orchestrator.cli", "up"]
            self._process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        ready = self.wait_until(lambda: re.search(r"Kargah is at (\S+)", self.log[begin:]), START_S)
        self.url = str(ready[1])

    def stop(self) -> None:
        """Ctrl-C; everything ends, and cleanly."""
        assert self._process is not None
        pids = self.pids()
        self._process.send_signal(signal.SIGINT)
        status = self._process.wait(STOP_S)
        self._process = None
        assert status == 0, f"`kargah up` ended with exit code {status}:\n{self.tail()}"
        assert not [pid for pid in pids.values() if _is_alive(pid)]

    def kill_supervisor(self) -> None:
        """SIGKILL for the supervisor alone: the kernel asks its children to stop, and nobody waits for them."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def end(self) -> None:
        """At the end of a test, whatever happened in it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def pids(self) -> dict[str, int]:
        """Process ids by role, of the children that run now."""
        assert self._process is not None
        return {
            role: pid
            for pid, words in _children(self._process.pid).items()
            for role, mark in WORDS.items()
            if mark in words
        }

    def kill(self, role: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the child of this role."""
        os.kill(self.pids()[role], number)

    def kargah(self, *arguments: str) -> "subprocess.Popen[str]":
        """Run the command line against this service."""
        command = [sys.executable, "-m", "orchestrator.cli", *arguments, "--url", self.url]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def client(self) -> Client:
        """A client that waits out what the tests do to the service."""
        return Client(self.url, patience_s=60.0)

    def wait_until(self, condition: Callable[[], T | None], timeout_s: float = 60.0) -> T:
        """The first true value of `condition`."""
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            ended = None if self._process is None else self._process.poll()
            assert ended is None, f"`kargah up` ended with exit code {ended}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s:\n{self.tail()}"
            time.sleep(0.02)
        return value

    def tail(self, lines: int = 60) -> str:
        """The end of the log, for a message."""
        return "\n".join(self.log.splitlines()[-lines:])


def _children(parent: int) -> dict[int, str]:
    """Command lines by pid."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,args=", "-ww"], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(maxsplit=2) for line in listed.splitlines())
    return {int(row[0]): row[2] for row in rows if len(row) == 3 and int(row[1]) == parent}


def _is_alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")
