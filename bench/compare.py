"""Kargah and its peers in one run: in turns, on one server, every workload on an empty one."""

import datetime
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.peers import Peer
from bench.process import ContenderFailed
from bench.workloads import Figures, Stage, Workload

Results = dict[str, dict[str, list[Figures]]]
"""By workload and contender: the figures of each round."""


class Run(msgspec.Struct):
    """All that a run found out."""

    date: str
    machine: str
    server: str
    rounds: int
    sizes: dict[str, float]
    seconds: float = 0.0
    versions: dict[str, dict[str, str]] = {}
    results: Results = {}
    failures: dict[str, str] = {}

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


async def compare(
    stage: Stage, peers: Sequence[Peer], workloads: Sequence[Workload], rounds: int, report: Callable[[str], None]
) -> Run:
    """Play every workload with every contender, `rounds` times; another one begins each time."""
    run = Run(today(), machine(), stage.server.version, rounds, stage.sizes._asdict())
    begin = time.monotonic()
    plays = [
        (turn, workload, peer)
        for turn in range(rounds)
        for workload in workloads
        if turn == 0 or not workload.is_once
        for peer in (*peers[turn % len(peers) :], *peers[: turn % len(peers)])
    ]
    for number, (turn, workload, peer) in enumerate(plays, 1):
        place = f"[{number}/{len(plays)}, {time.monotonic() - begin:.0f} s] round {turn + 1}, {workload.name}"
        try:
            stage.server.flush()
            figures = await workload.play(stage, peer)
        except (ContenderFailed, TimeoutError, KeyError) as problem:
            run.failures[f"{peer.name}, {workload.name}"] = str(problem) or type(problem).__name__
            report(f"{place}, {peer.name}: FAILED: {problem!r}")
            continue
        if figures is not None:
            run.results.setdefault(workload.name, {}).setdefault(peer.name, []).append(figures)
            told = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items() if value or name == "rate")
            report(f"{place}, {peer.name}: {told}")
    run.versions = stage.versions
    run.seconds = time.monotonic() - begin
    return run


def today() -> str:
    """As in 2026-11-30."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def machine() -> str:
    """A line about where this is."""
    model = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} × {model}, load {load:.1f} at the start, Python {platform.python_version()}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
