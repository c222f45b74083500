"""Where the time of an add and of a claim-and-finish goes: on the server by script and by command within, in the
client by layer; and how often the two talk.
"""

import asyncio
import cProfile
import pstats
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import lua
from bench.contenders.protocol import IN_FLIGHT, payload
from bench.peers import ROOT
from bench.server import Server, settle
from orchestrator import ActiveJob, Queue, Worker

QUEUE = "profile"
CONCURRENCY = 32
RUN_S = 300.0
MAX_SLOW = 1_000_000
SLOW_US = 4
"""Calls that took longer are noted; no script is that quick, and the commands within need not fill the list."""
SHOWN = 14

Part = Callable[[Server, int], Awaitable[None]]


class Profile(NamedTuple):
    """One part, per job: µs of the server's and the client's CPU, and of them what each script, command and layer took.

    trips: how often the server read from its sockets. A script's time is its median: the server's clock goes on while
    it has no core.
    """

    title: str
    server_us: float
    client_us: float
    trips: float
    scripts: dict[str, tuple[float, float]]
    inner: dict[str, tuple[float, float]]
    layers: dict[str, float]


async def profile(server: Server, count: int) -> list[Profile]:
    """The plain path: adds with 64 in flight, then one worker with 32 jobs at once."""
    server.flush()
    plain = [await _watch(server, part, count) for part in PARTS]
    server.flush()
    layers = [await _layers(server, part, count) for part in PARTS]
    server.flush()
    return [each._replace(layers=by_layer) for each, by_layer in zip(plain, layers, strict=True)]


async def _add(server: Server, count: int) -> None:
    async with Queue(QUEUE, server.url) as queue:
        each = iter(range(count))

        async def line() -> None:
            for number in each:
                await queue.add("job", payload(number))

        await asyncio.gather(*(line() for _ in range(IN_FLIGHT)))


async def _work(server: Server, count: int) -> None:
    ran = 0
    done = asyncio.Event()

    async def body(job: ActiveJob) -> None:
        nonlocal ran
        ran += 1
        if ran == count:
            done.set()

    async with Worker(QUEUE, body, server.url, concurrency=CONCURRENCY), asyncio.timeout(RUN_S):
        await done.wait()


PARTS: tuple[Part, ...] = (_add, _work)
TITLES: dict[Part, str] = {_add: f"add, {IN_FLIGHT} in flight", _work: f"claim, run and finish, {CONCURRENCY} at once"}


async def _watch(server: Server, part: Part, count: int) -> Profile:
    """Run a part; the server notes how long each call took."""
    server.ask("CONFIG", "SET", "slowlog-max-len", MAX_SLOW)
    server.ask("CONFIG", "SET", "slowlog-log-slower-than", SLOW_US)
    server.ask("SLOWLOG", "RESET")
    server.ask("CONFIG", "RESETSTAT")
    begin_s, client_s = server.cpu_s(), time.process_time()
    await part(server, count)
    client_us = (time.process_time() - client_s) * 1e6 / count
    await settle(server)
    server_us = (server.cpu_s() - begin_s) * 1e6 / count
    server.ask("CONFIG", "SET", "slowlog-log-slower-than", -1)
    reads = server.info("stats")["total_reads_processed"]
    inner = _inner(server, count)
    names = {lua.library().function(name): name for name in lua.names()}
    took: defaultdict[str, list[int]] = defaultdict(list)
    for entry in server.client.slowlog_get(MAX_SLOW):
        if name := _script(entry["command"], names):
            took[name].append(entry["duration"])
    server.ask("SLOWLOG", "RESET")
    scripts = {name: (len(each) / count, statistics.median(each) * len(each) / count) for name, each in took.items()}
    return Profile(TITLES[part], server_us, client_us, reads / count, scripts, inner, {})


def _inner(server: Server, count: int) -> dict[str, tuple[float, float]]:
    """By command, the scripts' own ones too: calls per job, and their µs by the mean.

    But at most twice the median of a call, in whole µs: that is what a server without a core would add.
    """
    latency = server.info("latencystats")
    found: dict[str, tuple[float, float]] = {}
    for key, told in server.info("commandstats").items():
        name = key.removeprefix("cmdstat_")
        if not name.startswith(("eval", "fcall")):
            middle = latency.get(f"latency_percentiles_usec_{name}", {}).get("p50", 0)
            mean = min(told["usec"] / told["calls"], 2 * max(middle, 0.5))
            found[name] = (told["calls"] / count, told["calls"] / count * mean)
    return found


def _script(command: bytes, names: dict[str, str]) -> str:
    """Which script a call ran; empty for other commands."""
    word, _, rest = command.decode(errors="replace").partition(" ")
    first = rest.partition(" ")[0]
    return names.get(first, first) if word.upper() in ("EVALSHA", "FCALL") else ""


async def _layers(server: Server, part: Part, count: int) -> dict[str, float]:
    """The share of each layer in the client's time, by a profile of its own (which slows it)."""
    profiler = cProfile.Profile()
    profiler.enable()
    await part(server, count)
    profiler.disable()
    told: Any = pstats.Stats(profiler)
    by_layer: Counter[str] = Counter()
    for (file, _, function), (_, _, own_s, _, callers) in told.stats.items():
        layer = layer_of(file, function)
        if layer or not callers:
            by_layer[layer or "other"] += own_s
            continue
        for (caller, _, caller_function), (_, _, share_s, _) in callers.items():
            by_layer[layer_of(caller, caller_function) or "other"] += share_s
    by_layer.pop("waiting", None)
    total = sum(by_layer.values()) or 1
    return {name: seconds / total for name, seconds in by_layer.most_common()}


def layer_of(file: str, function: str) -> str:
    """Whose code a function is; empty for those of everybody, like `len` or those of contextlib."""
    path = Path(file)
    if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
        return path.relative_to(ROOT).parts[0]
    if "select" in function and "poll" in function:
        return "waiting"
    for word, layer in LAYERS:
        if word in file or (file == "~" and word in function):
            return layer
    return ""


LAYERS = (
    ("hiredis", "redis-py"),
    ("redis", "redis-py"),
    ("msgspec", "encoding"),
    ("json", "encoding"),
    ("encode", "encoding"),
    ("decode", "encoding"),
    ("_socket", "sockets"),
    ("socket", "sockets"),
    ("asyncio", "asyncio"),
    ("uvloop", "asyncio"),
    ("_contextvars", "asyncio"),
    ("selectors", "asyncio"),
)


def render(profiles: list[Profile]) -> str:
    """Tables."""
    parts: list[str] = []
    for each in profiles:
        parts += [
            f"**{each.title}**: per job {each.server_us:.0f} µs of the server's CPU, {each.client_us:.0f} µs of the "
            f"client's, {each.trips:.2f} reads of the server.",
            _rows("script", each.scripts),
            _rows("command within, as the server counts them", each.inner),
            "Client: " + ", ".join(f"{name} {share:.0%}" for name, share in each.layers.items()),
        ]
    return "\n\n".join(parts)


def _rows(title: str, figures: dict[str, tuple[float, float]]) -> str:
    most = sorted(figures.items(), key=lambda item: -item[1][1])[:SHOWN]
    lines = [f"| {title} | calls per job | µs per job |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {calls:.2f} | {took:.1f} |" for name, (calls, took) in most)])
