"""How the commands show things: tables and colours for people, JSON for scripts."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from orchestrator.cli.console import out
from orchestrator.clock import now_ms

COLORS = {"completed": "green", "failed": "red", "canceled": "yellow", "active": "cyan", "delayed": "magenta"}
COMMON = frozenset(("type", "job", "id", "at", "run", "attempt", "seq"))
FULL_WIDTH = 10_000

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def table_of(*headings: str, wide: str | None = None) -> Table:
    """A table without lines; the column `wide` is the one that is cut off where there is no room."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    if wide is not None:
        table.add_column(wide, overflow="ellipsis", no_wrap=True)
    return table


def print_rows(table: Table, if_none: str) -> None:
    """Print a table, or in words that there is nothing. Only a terminal has too little room for a row."""
    if not out.is_terminal:
        out.width = FULL_WIDTH
    out.print(table if table.row_count else if_none, markup=False)


def print_facts(facts: Sequence[tuple[str, str | Text]]) -> None:
    """Print name and value, one a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in facts:
        table.add_row(name, value if isinstance(value, Text) else Text(value))
    out.print(table)


def print_event(event_type: str, fields: Mapping[str, Any]) -> None:
    """Print an event on one line: when, what, and its own fields."""
    moment = datetime.datetime.fromtimestamp(fields["at"] / 1000).astimezone()
    told = " ".join(f"{name}={plain(value)}" for name, value in fields.items() if name not in COMMON)
    out.print(Text.assemble((f"{moment:%H:%M:%S.%f}"[:-3], "dim"), f" {event_type:<10} {told}"))


def print_json(value: object) -> None:
    """Print anything that msgspec can encode."""
    out.print(msgspec.json.format(msgspec.json.encode(value)).decode(), markup=False)


def plain(value: Any) -> str:
    """One printable word, or JSON."""
    if isinstance(value, str) and value.isprintable() and " " not in value:
        return value
    return msgspec.json.encode(value).decode()


def colored(status: str) -> Text:
    """A state in its colour."""
    return Text(str(status), style=COLORS.get(status, ""))


def instant(ms: int) -> str:
    """An instant in local time."""
    return f"{datetime.datetime.fromtimestamp(ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"


def age(since_ms: int) -> str:
    """For how long something has been."""
    return duration(now_ms() - since_ms)


def duration(ms: int) -> str:
    """A time in its largest unit."""
    seconds = max(0, ms // 1000)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
