"""What every contender speaks with the driver: lines of JSON out, words in. Standard library only.

    python -m bench.contenders.NAME ROLE URL COUNT CONCURRENCY NAP_MS

Roles `add1`, `add64`, `bulk` and `fill` add COUNT jobs (awaited one by one, 64 in flight, 1,000 a call, as fast as it
can); `pickup` adds one at each line `next`; `work` is one worker process with CONCURRENCY jobs at once, each of NAP_MS.

    contender                          driver
    {"at": "ready", "versions": …}
                                       go
    {"at": "began"} … {"at": "done", …}                  a producer: what it measured
    {"at": "last"}                                       a worker: all COUNT jobs have run
                                       count             how many did you run? (any time)
    {"at": "count", "ran": 17}
                                       stop
    {"at": "done", …}                                    which jobs it ran how often, and when

A contender ends when its standard input does, so none outlives the driver. Clocks are CLOCK_MONOTONIC, which all
processes of a machine share. CPU times are of the process itself; the driver adds its children's.
"""

import asyncio
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import Any

IN_FLIGHT = 64
BULK = 1000
PAYLOAD_BYTES = 300
MAX_TOLD = 9
"""Beyond it, how often a job ran is told as so often."""

OUT = sys.stdout  # some workers replace it

Data = dict[str, Any]


def payload(number: int) -> Data:
    """What every job carries: 300 bytes of JSON, with its number."""
    data = {"n": number, "prompt": "", "size": [1024, 1024], "steps": 30, "guidance": 7.5}
    text = "a red circle on a white background, " * 9
    data["prompt"] = text[: PAYLOAD_BYTES - len(json.dumps(data, separators=(",", ":")))]
    return data


def tell(at: str, **fields: object) -> None:
    """Say a line to the driver."""
    OUT.write(json.dumps({"at": at, **fields}) + "\n")
    OUT.flush()


class Ran:
    """What a worker's bodies did. `begin` and `end` are all that a job does besides its nap."""

    def __init__(self, count: int, nap_ms: float, *, is_telling: bool = False) -> None:
        self.count = count
        self.nap_s = nap_ms / 1000
        self.is_telling = is_telling
        self.times = bytearray(count)
        self.total = 0
        self.different = 0
        self.first_ns = 0
        self.last_ns = 0
        self.first_cpu_s = 0.0
        self.last_cpu_s = 0.0
        self.idle_ns = 0
        self._ended_ns = 0

    def begin(self, number: int) -> None:
        """A body starts."""
        now = time.monotonic_ns()
        if self.is_telling:
            tell("began", n=number, ns=now)
        if self._ended_ns:
            self.idle_ns += now - self._ended_ns
            self._ended_ns = 0
        if not self.times[number]:
            self.different += 1
        self.times[number] = min(self.times[number] + 1, MAX_TOLD)
        self.total += 1
        self.last_ns = now
        if self.total == 1:
            self.first_ns = now
            self.first_cpu_s = time.process_time()
        if self.different == self.count and self.times[number] == 1:
            self.last_cpu_s = time.process_time()
            tell("last")

    def end(self) -> None:
        """A body that had a nap ends."""
        self._ended_ns = time.monotonic_ns()

    async def body(self, data: Data) -> None:
        """The job, for contenders with an event loop."""
        self.begin(data["n"])
        if self.nap_s:
            await asyncio.sleep(self.nap_s)
            self.end()

    def body_sync(self, data: Data) -> None:
        """The job, for contenders with threads."""
        self.begin(data["n"])
        if self.nap_s:
            time.sleep(self.nap_s)
            self.end()

    def report(self) -> None:
        """Tell the driver everything."""
        times = self.times.translate(bytes(48 + min(n, MAX_TOLD) for n in range(256))).decode()
        tell(
            "done",
            times=times,
            total=self.total,
            first_ns=self.first_ns,
            last_ns=self.last_ns,
            cpu_s=(self.last_cpu_s or time.process_time()) - self.first_cpu_s,
            idle_s=self.idle_ns / 1e9,
        )


RAN = Ran(0, 0)
"""The worker's, for contenders that find their function by its name; see `body`, `body_sync`."""


async def body(data: Data) -> None:
    """`RAN.body`, under a name that can be imported."""
    await RAN.body(data)


def body_sync(data: Data) -> None:
    """`RAN.body_sync`, under a name that can be imported."""
    RAN.body_sync(data)


class Contender:
    """A queue with an event loop; a subclass says how it is used. What is not there raises `NotImplementedError`."""

    packages: tuple[str, ...] = ()
    has_bulk = False

    def __init__(self, url: str, concurrency: int) -> None:
        self.url = url
        self.concurrency = concurrency

    async def open(self) -> None:
        """Connect a producer."""

    async def add(self, data: Data) -> None:
        """Add one job and wait until it is stored."""
        raise NotImplementedError

    async def add_bulk(self, many: list[Data]) -> None:
        """Add many jobs in one call."""
        raise NotImplementedError

    async def work(self, ran: Ran) -> None:
        """Be a worker until cancelled."""
        raise NotImplementedError


class SyncContender:
    """The same for a queue without an event loop. `work` may return at once, or never."""

    packages: tuple[str, ...] = ()
    has_bulk = False

    def __init__(self, url: str, concurrency: int) -> None:
        self.url = url
        self.concurrency = concurrency

    def open(self) -> None:
        """Connect a producer."""

    def add(self, data: Data) -> None:
        """Add one job and wait until it is stored."""
        raise NotImplementedError

    def add_bulk(self, many: list[Data]) -> None:
        """Add many jobs in one call."""
        raise NotImplementedError

    def work(self, ran: Ran) -> None:
        """Be a worker."""
        raise NotImplementedError


def main(kind: "type[Contender] | type[SyncContender]") -> None:
    """Play the role that the command line names, to its end."""
    global RAN
    role, url, count, concurrency, nap_ms = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    contender = kind(url, concurrency)
    words: queue.SimpleQueue[str] = queue.SimpleQueue()
    if role == "work":
        RAN = Ran(count, max(float(nap_ms), 0), is_telling=float(nap_ms) < 0)
    threading.Thread(target=_listen, args=(words,), daemon=True).start()
    tell("ready", versions={name: metadata.version(name) for name in contender.packages}, has_bulk=kind.has_bulk)
    if words.get() == "go":
        if isinstance(contender, SyncContender):
            _run_sync(contender, role, count, words)
        else:
            import uvloop  # here, so that the synchronous ones do without

            uvloop.run(_run(contender, role, count, words))
        words.get()
    leave()


def leave() -> None:
    """End at once, whatever still runs."""
    os._exit(0)


def _listen(words: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        word = line.strip()
        if word == "count":
            tell("count", ran=RAN.total)
        elif word == "stop":
            RAN.report()
            leave()
        else:
            words.put(word)
    leave()


# ── with an event loop ───────────────────────────────────────────────────────────────────────────────


async def _run(contender: Contender, role: str, count: int, words: "queue.SimpleQueue[str]") -> None:
    if role == "work":
        await contender.work(RAN)
        await asyncio.Event().wait()
    await contender.open()
    if role == "pickup":
        for number in range(count):
            await asyncio.to_thread(words.get)
            data = payload(number)
            began_ns = time.monotonic_ns()
            await contender.add(data)
            tell("added", n=number, ns=began_ns)
    else:
        many = [payload(number) for number in range(count)]
        times_ns: list[int] = []
        tell("began")
        began_ns, began_cpu_s = time.monotonic_ns(), time.process_time()
        if role == "bulk" or (role == "fill" and contender.has_bulk):
            await _timed(times_ns, lambda start: contender.add_bulk(many[start : start + BULK]), range(0, count, BULK))
        else:
            lines = 1 if role == "add1" else IN_FLIGHT
            each = iter(range(count))
            await asyncio.gather(*(_timed(times_ns, lambda n: contender.add(many[n]), each) for _ in range(lines)))
        _added(began_ns, began_cpu_s, times_ns)


async def _timed(times_ns: list[int], act: Callable[[int], Awaitable[None]], numbers: Any) -> None:
    clock = time.monotonic_ns
    for number in numbers:
        began_ns = clock()
        await act(number)
        times_ns.append(clock() - began_ns)


def _added(began_ns: int, began_cpu_s: float, times_ns: list[int]) -> None:
    wall_s = (time.monotonic_ns() - began_ns) / 1e9
    cpu_s = time.process_time() - began_cpu_s
    times_ns.sort()
    middle, late = (times_ns[int(len(times_ns) * share)] / 1e6 for share in (0.5, 0.99))
    tell("done", wall_s=wall_s, cpu_s=cpu_s, p50_ms=middle, p99_ms=late, began_ns=began_ns)


# ── without ──────────────────────────────────────────────────────────────────────────────────────────


def _run_sync(contender: SyncContender, role: str, count: int, words: "queue.SimpleQueue[str]") -> None:
    if role == "work":
        contender.work(RAN)
        threading.Event().wait()
    contender.open()
    if role == "pickup":
        for number in range(count):
            words.get()
            data = payload(number)
            began_ns = time.monotonic_ns()
            contender.add(data)
            tell("added", n=number, ns=began_ns)
        return
    many = [payload(number) for number in range(count)]
    times_ns: list[int] = []
    tell("began")
    began_ns, began_cpu_s = time.monotonic_ns(), time.process_time()
    if role == "bulk" or (role == "fill" and contender.has_bulk):
        _timed_sync(times_ns, lambda start: contender.add_bulk(many[start : start + BULK]), range(0, count, BULK))
    elif role == "add1":
        _timed_sync(times_ns, lambda n: contender.add(many[n]), range(count))
    else:
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            each = [range(start, count, IN_FLIGHT) for start in range(IN_FLIGHT)]
            list(pool.map(lambda numbers: _timed_sync(times_ns, lambda n: contender.add(many[n]), numbers), each))
    _added(began_ns, began_cpu_s, times_ns)


def _timed_sync(times_ns: list[int], act: Callable[[int], None], numbers: "range") -> None:
    clock = time.monotonic_ns
    for number in numbers:
        began_ns = clock()
        act(number)
        times_ns.append(clock() - began_ns)
