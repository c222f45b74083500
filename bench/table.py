"""From the figures of all rounds to tables in Markdown."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from bench.compare import Results, Run
from bench.peers import PEERS, Peer

NOTHING = "–"
OURS = "kargah"
MAIN_PEER = "bullmq"


class Column(NamedTuple):
    """One figure of one workload."""

    workload: str
    figure: str
    title: str
    is_less_better: bool = False
    text: Callable[[float], str] = "{:,.0f}".format


RATES = (
    Column("add1", "rate", "add1"),
    Column("add1", "p50_ms", "add1 p50 ms", True, "{:.2f}".format),
    Column("add64", "rate", "add64"),
    Column("bulk", "rate", "bulk"),
    Column("c1", "rate", "c1"),
    Column("c32", "rate", "c32"),
    Column("c100", "rate", "c100"),
    Column("pickup", "p50_ms", "pickup p50 ms", True, "{:.2f}".format),
    Column("pickup", "p99_ms", "p99 ms", True, "{:.2f}".format),
    Column("gpu", "idle_pct", "gpu idle %", True, "{:.1f}".format),
    Column("memory", "bytes", "B/job", True),
)
BOTH = ("add1", "add64", "bulk", "c1", "c32", "c100")
CPU = tuple(
    Column(workload, f"{side}_us", f"{workload} {side}", True) for workload in BOTH for side in ("server", "client")
)
COUNTS = tuple(
    Column(workload, figure, f"{workload} {figure}", True)
    for workload in ("c1", "c32", "c100", "gpu")
    for figure in ("twice", "missing")
)


def median(results: Results, column: Column, name: str) -> float | None:
    """The median over the rounds; None if there is nothing."""
    rounds = results.get(column.workload, {}).get(name, [])
    values = [figures[column.figure] for figures in rounds if column.figure in figures]
    return statistics.median(values) if values else None


def best(results: Results, column: Column, *, of_floors: bool = False) -> tuple[str, float] | None:
    """Who of the peers (or of the floors) does best, and how well."""
    found = [
        (value, peer.name)
        for peer in PEERS
        if peer.name != OURS
        and peer.is_floor == of_floors
        and (value := median(results, column, peer.name)) is not None
    ]
    if not found:
        return None
    value, name = min(found) if column.is_less_better else max(found)
    return name, value


def ratio(results: Results, column: Column, other: float | None) -> float | None:
    """How many times as good as that Kargah is: above 1 is better, also where less is better."""
    ours = median(results, column, OURS)
    if not ours or not other:
        return None
    return other / ours if column.is_less_better else ours / other


def render(run: Run) -> str:
    """The whole report."""
    peers = [peer for peer in PEERS if any(peer.name in by_peer for by_peer in run.results.values())]
    parts = [
        f"{run.date}; {run.machine}; {run.server}, AOF everysec; {_rounds(run.rounds)}; {run.seconds:.0f} s",
        "Jobs/s (more is better) and other figures (less is better)",
        _table(run.results, peers, RATES),
        "CPU, µs per job: of the server, and of the client (producer or worker)",
        _table(run.results, peers, CPU),
        _astray(run.results, peers),
        _versions(run, peers),
        *(f"FAILED: {name}: {problem}" for name, problem in run.failures.items()),
    ]
    return "\n\n".join(part for part in parts if part)


def _table(results: Results, peers: Sequence[Peer], columns: Iterable[Column]) -> str:
    shown = [column for column in columns if any(median(results, column, peer.name) is not None for peer in peers)]
    if not shown:
        return ""
    rows = [
        ["", *(column.title for column in shown)],
        *([peer.title, *(_text(each, median(results, each, peer.name)) for each in shown)] for peer in peers),
    ]
    if any(peer.name == OURS for peer in peers):
        rows += _ratio_rows(results, shown)
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body])


def _ratio_rows(results: Results, columns: Sequence[Column]) -> list[list[str]]:
    """How many times as good Kargah is: as the best peer and the better floor of each column, and as the main peer."""
    rows = []
    for title, of_floors in (("Kargah to the best peer", False), ("Kargah to the better floor", True)):
        others = [best(results, column, of_floors=of_floors) for column in columns]
        times = [ratio(results, each, other and other[1]) for each, other in zip(columns, others, strict=True)]
        if any(times):
            names = [f" ({other[0]})" if other and not of_floors else "" for other in others]
            rows.append([title, *(f"{_times(each)}{name}" for each, name in zip(times, names, strict=True))])
    to_main = [ratio(results, column, median(results, column, MAIN_PEER)) for column in columns]
    if any(to_main):
        rows.append(["Kargah to BullMQ on Node", *map(_times, to_main)])
    return rows


def _times(value: float | None) -> str:
    return f"{value:.2f} ×" if value else NOTHING


def _text(column: Column, value: float | None) -> str:
    return NOTHING if value is None else column.text(value)


def _astray(results: Results, peers: Sequence[Peer]) -> str:
    found = []
    for peer in peers:
        for column in COUNTS:
            total = sum(
                figures.get(column.figure, 0) for figures in results.get(column.workload, {}).get(peer.name, [])
            )
            if total:
                found.append(f"{peer.name} {column.title}: {total:.0f}")
    return "Jobs that ran twice or not at all, in all rounds: " + ("; ".join(found) or "none") + "."


def _versions(run: Run, peers: Sequence[Peer]) -> str:
    told = (
        f"{peer.name} ({', '.join(f'{name} {version}' for name, version in run.versions[peer.name].items())})"
        for peer in peers
        if peer.name in run.versions
    )
    return "Versions: " + "; ".join(told) + "."


def _rounds(number: int) -> str:
    return f"medians of {number} rounds" if number > 1 else "one round"
