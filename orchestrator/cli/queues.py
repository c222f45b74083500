"""`kargah queues`: what waits where, and what is let through."""

import datetime
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.console import out
from orchestrator.cli.quantities import duration_ms
from orchestrator.cli.quantities import rate as read_rate
from orchestrator.cli.store import QueueName, opened, opened_all
from orchestrator.cli.tables import AsJson, duration, instant, print_facts, print_json, print_rows, table_of
from orchestrator.metrics import KINDS, MINUTE_MS, Overview
from orchestrator.queue.observing import QueueMeta

STATES = ("waiting", "active", "delayed", "waiting-children", "completed", "failed", "canceled")
COUNTED = tuple(kind for kind in KINDS if not kind.endswith("_ms"))

app = typer.Typer(help="See what waits where; pause, resume and limit queues.", invoke_without_command=True)


@app.callback()
def queues(context: typer.Context, as_json: AsJson = False) -> None:
    """See what waits where; pause, resume and limit queues. Without a command: the list."""
    if context.invoked_subcommand is None:
        list_(as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List all queues: their jobs by state, their workers, and how long the longest waiting job has waited."""
    with opened_all() as queues:
        overviews = [queue.get_overview() for queue in queues]
    if as_json:
        print_json([_as_json(overview) for overview in overviews])
        return
    table = table_of("QUEUE", *(state.upper() for state in STATES), "WORKERS", "OLDEST", "")
    for overview in overviews:
        stats = overview.stats
        oldest = "" if stats.oldest_waiting_ms is None else duration(stats.oldest_waiting_ms)
        counts = [str(overview.counts.get(state, 0)) for state in STATES]
        paused = Text("paused" if stats.paused else "", style="yellow")
        table.add_row(Text(overview.queue), *counts, str(stats.workers), oldest, paused)
    print_rows(table, "no queues")


@app.command()
def pause(name: QueueName) -> None:
    """Let no more jobs of a queue start; running ones go on."""
    with opened(name) as queue:
        queue.pause()
    out.print("paused")


@app.command()
def resume(name: QueueName) -> None:
    """Let the jobs of a queue start again."""
    with opened(name) as queue:
        queue.resume()
    out.print("resumed")


@app.command()
def drain(
    name: QueueName,
    delayed: Annotated[bool, typer.Option("--delayed", help="Those too that are delayed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove the jobs of a queue that wait. Running and finished ones stay, and jobs that wait for children."""
    with opened(name) as queue:
        if not yes:
            typer.confirm(f"Remove the waiting{' and the delayed' if delayed else ''} jobs of {name}?", abort=True)
        removed = queue.drain(delayed=delayed)
    out.print(f"removed {removed}")


@app.command()
def limits(
    name: QueueName,
    concurrency: Annotated[
        int | None,
        typer.Option(min=0, max=1_000_000, help="At most so many run at once, over all workers; 0 = any number."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="N/TIME", help="At most so many starts in any such time, as in 10/1s or 500/m; 0 = any."),
    ] = None,
    hold: Annotated[
        str | None, typer.Option(metavar="TIME", help="Nothing starts for so long, as in 30s; 0 = go on.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show, set or lift what limits the starts of a queue's jobs."""
    starts = None if rate is None else read_rate(rate)
    hold_ms = None if hold is None else duration_ms("--hold", hold)
    with opened(name) as queue:
        if concurrency is not None:
            queue.set_global_concurrency(concurrency)
        if starts is not None:
            queue.set_global_rate_limit(*starts)
        if hold_ms is not None:
            queue.rate_limit(hold_ms)
        meta = queue.get_meta()
    if as_json:
        print_json(meta._asdict())
    else:
        print_facts(_limits(meta))


@app.command()
def metrics(
    name: QueueName,
    minutes: Annotated[int, typer.Option("--minutes", "-n", min=1, max=1440, help="How many, up to now.")] = 15,
    as_json: AsJson = False,
) -> None:
    """Show what happened to a queue's jobs minute by minute, with the mean times they waited and ran."""
    with opened(name) as queue:
        last = queue.get_metrics("added")
        end = last.start_minute + len(last.counts) - 1
        found = {kind: queue.get_metrics(kind, end - minutes + 1, end).counts for kind in KINDS}
    rows = [{"minute": end - minutes + 1 + i} | {kind: found[kind][i] for kind in KINDS} for i in range(minutes)]
    if as_json:
        print_json(rows)
        return
    table = table_of("MINUTE", *(kind.upper() for kind in COUNTED), "WAIT", "RUN")
    for row in rows:
        moment = datetime.datetime.fromtimestamp(row["minute"] * MINUTE_MS / 1000).astimezone()
        means = [
            f"{row[kind] / row['started'] / 1000:.1f}s" if row["started"] else "" for kind in ("wait_ms", "run_ms")
        ]
        table.add_row(f"{moment:%H:%M}", *(str(row[kind] or "") for kind in COUNTED), *means)
    print_rows(table, "")


def _limits(meta: QueueMeta) -> list[tuple[str, str | Text]]:
    rate = "any number" if meta.rate_max is None else f"{meta.rate_max} in any {meta.rate_ms} ms"
    facts: list[tuple[str, str | Text]] = [
        ("paused", "yes" if meta.paused else "no"),
        ("at once", "any number" if meta.concurrency is None else str(meta.concurrency)),
        ("starts", rate),
    ]
    if meta.limited_until is not None:
        facts.append(("on hold until", instant(meta.limited_until)))
    if not meta.metrics:
        facts.append(("metrics", "off"))
    return facts


def _as_json(overview: Overview) -> dict[str, object]:
    counts = {"queue": overview.queue, "counts": dict(overview.counts), "pending": overview.pending}
    return counts | overview.stats._asdict()
