"""How fast `POST /v1/generations` is answered: 50 requests a second for 20 seconds, on a server and api of its own.

    python -m bench api [--rate 50] [--seconds 20]

Requests are sent when they are due, whether or not earlier ones were answered, so a slow answer cannot hide the ones
behind it. No worker runs. Exit status 1 if an answer is not 202 or the 99th percentile reaches the bar.
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from orchestrator.embedded import EmbeddedServer

BAR_MS = 30.0
WARM_UP = 20
START_S = 30.0
ROOT = Path(__file__).resolve().parent.parent


class Connection:
    """A kept connection that sends one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, number: int) -> tuple[int, float]:
        """Ask for a generation; the status, and the milliseconds from the first byte sent to the last one received."""
        loop = asyncio.get_running_loop()
        body = msgspec.json.encode(
            {"prompt": f"a red circle on a white background, {number}", "metadata": {"n": number}}
        )
        head = (
            "POST /v1/generations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        begin = loop.time()
        self.writer.write(head.encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in answer.lower().split(b"\r\n")[1:] if line)
        await self.reader.readexactly(int(fields[b"content-length"]))
        return int(answer.split(b" ", 2)[1]), (loop.time() - begin) * 1000


async def main(words: Sequence[str]) -> int:
    """Run the benchmark; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench api", description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=50, help="requests a second")
    parser.add_argument("--seconds", type=float, default=20, help="for how long")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="kargah-bench-") as folder:
        async with embedded_server(Path(folder)) as url, api_process(url, Path(folder)) as port:
            count = max(1, round(options.rate * options.seconds))
            statuses, times_ms = await measure(port, count, options.rate)
    return report(statuses, sorted(times_ms), options.rate)


@contextlib.asynccontextmanager
async def embedded_server(folder: Path) -> AsyncIterator[str]:
    """The service's own Valkey with its own settings (AOF on); its URL."""
    with EmbeddedServer(folder) as server:
        command = server.command()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, pass_fds=(server.lock_fd,))  # noqa: ASYNC220
        try:
            async with asyncio.timeout(START_S):
                while not await server.is_ready():
                    await asyncio.sleep(0.05)
            yield server.url
        finally:
            process.terminate()
            process.wait(START_S)


@contextlib.asynccontextmanager
async def api_process(url: str, folder: Path) -> AsyncIterator[int]:
    """The api as a process; its port."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "KARGAH_REDIS_URL": url,
        "KARGAH_DATA_DIR": str(folder),
        "KARGAH_PORT": "0",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "orchestrator.api", env=variables, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    draining = None
    try:
        async with asyncio.timeout(START_S):
            while b"api.listening" not in (line := await process.stderr.readline()):
                if not line:
                    raise RuntimeError("the api did not start")
        draining = asyncio.create_task(process.stderr.read())  # its lines are cheap to take and must not block it
        yield int(line.rsplit(b":", 1)[1])
    finally:
        process.terminate()
        await process.wait()
        if draining is not None:
            await draining


async def measure(port: int, count: int, rate: float) -> tuple[list[int], list[float]]:
    """Send `count` requests, one every 1/`rate` seconds."""
    idle: list[Connection] = []
    statuses: list[int] = []
    times_ms: list[float] = []

    async def send(number: int, *, is_counted: bool = True) -> None:
        connection = idle.pop() if idle else await Connection.open(port)
        status, time_ms = await connection.post(number)
        idle.append(connection)
        if is_counted:
            statuses.append(status)
            times_ms.append(time_ms)

    for number in range(WARM_UP):
        await send(number, is_counted=False)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    async with asyncio.timeout(count / rate + START_S), asyncio.TaskGroup() as sending:
        for number in range(count):
            await asyncio.sleep(begin + number / rate - loop.time())
            sending.create_task(send(number))
    for connection in idle:
        connection.writer.close()
    return statuses, times_ms


def report(statuses: list[int], times_ms: list[float], rate: float) -> int:
    """Print the table; the exit status."""

    def percentile(share: float) -> float:
        return times_ms[min(len(times_ms) - 1, int(len(times_ms) * share))]

    refused = sum(status != 202 for status in statuses)
    print(f"POST /v1/generations, {len(times_ms)} requests at {rate:g}/s on {os.cpu_count()} CPUs")
    print(f"{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}{'not 202':>10}")
    figures = [f"{value:.1f} ms" for value in (percentile(0.5), percentile(0.9), percentile(0.99), times_ms[-1])]
    print("".join(f"{figure:>10}" for figure in figures) + f"{refused:>10}")
    is_good = refused == 0 and percentile(0.99) < BAR_MS
    print(f"bar: p99 < {BAR_MS:g} ms: {'holds' if is_good else 'MISSED'}")
    return 0 if is_good else 1
