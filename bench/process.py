"""One contender's process, as the driver sees it."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from bench.peers import ROOT, Peer
from bench.server import Server, children_cpu_s, die_with_parent, pinned

READY_S = 60.0
END_S = 5.0
LINE_BYTES = 1 << 24


class ContenderFailed(RuntimeError):
    """A contender ended, or said nothing, before it had done its part."""


class Process:
    """A contender in one role."""

    def __init__(self, peer: Peer, process: asyncio.subprocess.Process, errors: Any) -> None:
        self.peer = peer
        self.versions: dict[str, str] = {}
        self.has_bulk = False
        self._process = process
        self._errors = errors

    @property
    def children_cpu_s(self) -> float:
        """CPU seconds of its children, as far as they live."""
        return children_cpu_s(self._process.pid)

    def say(self, word: str) -> None:
        """Send it a word."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(word.encode() + b"\n")

    async def hear(self, at: str, timeout_s: float) -> dict[str, Any]:
        """Its next line of this kind; lines of other kinds before it are dropped. `TimeoutError` if there is none."""
        assert self._process.stdout is not None
        async with asyncio.timeout(timeout_s):
            while line := await self._process.stdout.readline():
                if not line.startswith(b"{"):  # some peers print what they like
                    continue
                told: dict[str, Any] = msgspec.json.decode(line)
                if told.get("at") == at:
                    return told
        raise ContenderFailed(f"{self.peer.name} ended: {self._last_words()}")

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:]) or "without a word"

    async def end(self) -> None:
        """Close its input, at which it ends; kill it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def contender(
    peer: Peer, server: Server, role: str, count: int, concurrency: int = 1, nap_ms: float = 0, core: int | None = None
) -> AsyncIterator[Process]:
    """Start a contender and wait until it is ready for `go`."""
    command = [*peer.command(), role, server.url, str(count), str(concurrency), f"{nap_ms:g}"]
    with tempfile.TemporaryFile() as errors:
        started = await asyncio.create_subprocess_exec(
            *pinned(command, core),
            cwd=ROOT,
            env=peer.variables(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=LINE_BYTES,
            preexec_fn=die_with_parent,
        )
        process = Process(peer, started, errors)
        try:
            ready = await process.hear("ready", READY_S)
            process.versions, process.has_bulk = ready["versions"], ready["has_bulk"]
            yield process
        finally:
            await process.end()
