"""How many instructions of the server a job costs, which no load on the machine changes: the server runs in callgrind.

Only for comparing one version of the scripts with another: instructions are not time. Needs valgrind (Debian's
package of that name).
"""

import asyncio
import re
import secrets
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.contenders.protocol import payload
from bench.server import Server, running
from orchestrator import Queue
from orchestrator.scripts import Claim, Finish

SIZES = (1, 8, 32)
WARM = 192
LEASE_MS = 30_000
INTERVAL_MS = 5000

Report = Callable[[str], None]


class Instructions(NamedTuple):
    """Thousands of them for each job, in calls for `size`: of an add, and of a finish with the next claim."""

    size: int
    add: float
    work: float


class Callgrind:
    """A server that runs in callgrind, which counts when it is told to."""

    def __init__(self, server: Server, out: Path) -> None:
        self._pid = str(server.pid)
        self._out = out

    async def count(self, act: Awaitable[None]) -> int:
        """How many instructions the server had to do for it."""
        for path in self._out.parent.glob(f"{self._out.name}*"):
            path.unlink()
        self._tell("--instr=on")
        self._tell("--zero")
        await act
        self._tell("--dump")
        self._tell("--instr=off")
        (path,) = self._out.parent.glob(f"{self._out.name}.*")
        found = re.search(r"^(?:totals|summary): (\d+)", path.read_text(), re.MULTILINE)
        if found is None:
            raise RuntimeError("callgrind counted nothing")
        return int(found[1])

    def _tell(self, option: str) -> None:
        subprocess.run(["callgrind_control", option, self._pid], check=True, capture_output=True)


async def instructions(kind: str, count: int, report: Report, sizes: Sequence[int] = SIZES) -> list[Instructions]:
    """Of `count` jobs in calls of each size; the server is of that kind."""
    if shutil.which("callgrind_control") is None:
        raise SystemExit("there is no valgrind here (Debian: apt-get install valgrind)")
    found = []
    for size in sizes:
        report(f"instructions: calls of {size}")
        with TemporaryDirectory(prefix="kargah-bench-") as folder:
            out = Path(folder, "calls")
            command = ("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}")
            with running(kind, wrapper=command) as server:
                async with Queue("instructions", server.url) as queue:
                    found.append(await _measure(queue, Callgrind(server, out), size, max(count // size, 1) * size))
    return found


async def _measure(queue: Queue, callgrind: Callgrind, size: int, count: int) -> Instructions:
    caller = Caller(queue, size)
    await caller.add(2 * WARM)
    await caller.work(WARM)
    added = await callgrind.count(caller.add(count))
    worked = await callgrind.count(caller.work(count))
    return Instructions(size, added / count / 1000, worked / count / 1000)


class Caller:
    """Adds, and ends and claims as a lane of a worker does, `size` jobs in each call."""

    def __init__(self, queue: Queue, size: int) -> None:
        self._queue = queue
        self._size = size
        self._calls = 0
        self._held: list[Claim] = []

    async def add(self, count: int) -> None:
        """Plain jobs."""
        for start in range(0, count, self._size):
            await asyncio.gather(*(self._queue.add("job", payload(start + n)) for n in range(self._size)))

    async def work(self, count: int) -> None:
        """Claim them, and record that they completed."""
        done = 0
        while done < count:
            self._calls += 1
            ended = [Finish(claim.job.id, claim.lease, "completed", b"null") for claim in self._held]
            token = f"{self._calls}-{secrets.token_urlsafe(9)}"
            lane = "worker:0", "worker", LEASE_MS, INTERVAL_MS
            claims = await self._queue.scripts.move_to_finished(token, *lane, self._size, ended)
            self._held = claims.claims
            done += len(ended)


def render(found: Sequence[Instructions]) -> str:
    """A table."""
    lines = [
        "Thousand instructions of the server for a job, by how many jobs a call is for",
        "",
        "| | " + " | ".join(str(each.size) for each in found) + " |",
        "| --- |" + " --- |" * len(found),
        "| add | " + " | ".join(f"{each.add:.0f}" for each in found) + " |",
        "| finish with the next claim | " + " | ".join(f"{each.work:.0f}" for each in found) + " |",
    ]
    return "\n".join(lines)
