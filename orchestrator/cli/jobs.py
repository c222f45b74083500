"""`kargah jobs`: look at generations, cancel, retry and remove them."""

import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from orchestrator.cli.console import JobId, Url, connect, out
from orchestrator.client import GenerationView, StreamEvent
from orchestrator.clock import now_ms

app = typer.Typer(help="Look at generations, cancel, retry and remove them.", no_args_is_help=True)

COLORS = {"completed": "green", "failed": "red", "canceled": "yellow", "active": "cyan", "delayed": "magenta"}
COMMON = frozenset(("type", "job", "id", "at", "run", "attempt", "seq"))

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Status(StrEnum):
    """The states one may ask for."""

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


@app.command("list")
def list_(
    status: Annotated[Status | None, typer.Option(help="Only these.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")] = 20,
    as_json: AsJson = False,
    url: Url = "",
) -> None:
    """List generations: those under way first, then the newest finished ones."""
    found: list[GenerationView] = []
    with connect(url) as client:
        cursor: str | None = None
        while len(found) < limit:
            page = client.list(status=status, limit=min(limit - len(found), 100), cursor=cursor)
            found.extend(page.data)
            cursor = page.next_cursor
            if cursor is None:
                break
    if as_json:
        _print_json(found)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("ID", "STATUS", "AGE"):
        table.add_column(heading, no_wrap=True)
    table.add_column("PROMPT", overflow="ellipsis", no_wrap=True)
    for each in found:
        age = _duration(now_ms() - each.created_at)
        table.add_row(each.id, _colored(each.status), age, Text(each.input.prompt))
    out.print(table if found else "no generations")


@app.command()
def show(job_id: JobId, as_json: AsJson = False, url: Url = "") -> None:
    """Show one generation with all that is known of it."""
    with connect(url) as client:
        generation = client.get(job_id)
    if as_json:
        _print_json(generation)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in _facts(generation):
        table.add_row(name, value if isinstance(value, Text) else Text(value))
    out.print(table)


@app.command()
def cancel(job_id: JobId, url: Url = "") -> None:
    """Cancel a generation: at once if it waits, within a step if it runs."""
    with connect(url) as client:
        generation = client.cancel(job_id)
    out.print("canceled" if generation.status == "canceled" else "canceling")


@app.command()
def retry(job_id: JobId, url: Url = "") -> None:
    """Run a finished generation again, with the same seed."""
    with connect(url) as client:
        generation = client.retry(job_id)
    out.print(_colored(generation.status))


@app.command()
def remove(job_id: JobId, url: Url = "") -> None:
    """Remove a generation and its pictures. One that runs must be canceled first."""
    with connect(url) as client:
        client.remove(job_id)
    out.print("removed")


@app.command()
def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it is finished.")] = False,
    url: Url = "",
) -> None:
    """Show all that happened to a generation, one line for each event."""
    with connect(url) as client:
        last_id = "0-0"
        for event in client.history(job_id):
            _print_event(event)
            last_id = event.id or last_id
        if follow:
            for event in client.follow(job_id, last_id):
                _print_event(event)


def _facts(generation: GenerationView) -> list[tuple[str, str | Text]]:
    given = generation.input
    facts: list[tuple[str, str | Text]] = [
        ("id", generation.id),
        ("status", _colored(generation.status)),
        ("prompt", given.prompt),
        ("model", given.model),
        (
            "picture",
            f"{given.width}×{given.height}, {given.steps} steps, guidance {given.guidance_scale:g}, seed {given.seed}",
        ),
        ("attempt", f"{generation.attempt} of {generation.attempts}, run {generation.run}"),
        ("created", _instant(generation.created_at)),
    ]
    if given.negative_prompt:
        facts.insert(3, ("negative", given.negative_prompt))
    for name in ("started", "finished", "expires"):
        instant = getattr(generation, f"{name}_at")
        if instant is not None:
            facts.append((name, _instant(instant)))
    if generation.progress is not None and not generation.status.is_finished:
        facts.append(("progress", f"{generation.progress.phase}, {generation.progress.fraction:.0%}"))
    if generation.error is not None:
        facts.append(("error", f"{generation.error.message} ({generation.error.kind})"))
    facts.extend(("image", picture.url) for picture in generation.images)
    return facts


def _print_event(event: StreamEvent) -> None:
    moment = datetime.datetime.fromtimestamp(event.data["at"] / 1000).astimezone()
    fields = " ".join(f"{name}={_plain(value)}" for name, value in event.data.items() if name not in COMMON)
    out.print(Text.assemble((f"{moment:%H:%M:%S.%f}"[:-3], "dim"), f" {event.type:<10} {fields}"))


def _plain(value: Any) -> str:
    return (
        value
        if isinstance(value, str) and value.isprintable() and " " not in value
        else msgspec.json.encode(value).decode()
    )


def _print_json(value: object) -> None:
    out.print(msgspec.json.format(msgspec.json.encode(value)).decode(), markup=False)


def _colored(status: str) -> Text:
    return Text(str(status), style=COLORS.get(status, ""))


def _instant(ms: int) -> str:
    return f"{datetime.datetime.fromtimestamp(ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"


def _duration(ms: int) -> str:
    seconds = max(0, ms // 1000)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
