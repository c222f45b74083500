"""`kargah groups`: who shares a queue, what each group may take, and what waits in it."""

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.console import out
from orchestrator.cli.quantities import duration_ms, whole
from orchestrator.cli.quantities import rate as read_rate
from orchestrator.cli.queue_jobs import plain_job
from orchestrator.cli.store import OtherQueue, opened
from orchestrator.cli.tables import AsJson, instant, print_facts, print_json, print_rows, table_of
from orchestrator.group import Group, GroupPlace, RateLimit
from orchestrator.queue import MAX_PAGE

SHOWN_JOBS = 10

app = typer.Typer(help="See who shares a queue; pause, weigh and limit groups.", no_args_is_help=True)

GroupId = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]


@app.command("list")
def list_(
    queue: OtherQueue = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the groups of a queue: those whose turn comes first, then those that are held, then idle ones."""
    found: list[Group] = []
    with opened(queue) as store:
        while len(found) < limit:
            page = store.get_groups(len(found), min(limit - len(found), MAX_PAGE))
            found += page
            if len(page) < MAX_PAGE:
                break
    if as_json:
        print_json(found)
        return
    table = table_of("GROUP", "PLACE", "WAITING", "ACTIVE", "WEIGHT", "")
    for group in found:
        counts = (str(group.waiting), str(group.active), f"{group.weight:g}")
        paused = Text("paused" if group.paused else "", style="yellow")
        table.add_row(Text(group.id), str(group.place), *counts, paused)
    print_rows(table, "no groups")


@app.command()
def show(group_id: GroupId, queue: OtherQueue = "", as_json: AsJson = False) -> None:
    """Show one group, and which of its jobs come next."""
    with opened(queue) as store:
        group = store.get_group(group_id)
        jobs = store.get_group_jobs(group_id, 0, SHOWN_JOBS)
    if as_json:
        print_json({"group": group, "jobs": [plain_job(job) for job in jobs]})
        return
    facts: list[tuple[str, str | Text]] = [
        ("group", group.id),
        ("place", _place(group)),
        ("waiting", str(group.waiting)),
        ("active", str(group.active)),
        ("weight", f"{group.weight:g}"),
        *_limits(group),
    ]
    print_facts(facts + [("next", f"{job.id} {job.name}") for job in jobs])


@app.command()
def pause(group_id: GroupId, queue: OtherQueue = "") -> None:
    """Let no more jobs of a group start; running ones go on, as do other groups."""
    with opened(queue) as store:
        store.pause_group(group_id)
    out.print("paused")


@app.command()
def resume(group_id: GroupId, queue: OtherQueue = "") -> None:
    """Let the jobs of a group start again."""
    with opened(queue) as store:
        store.resume_group(group_id)
    out.print("resumed")


@app.command()
def weight(
    group_id: GroupId,
    weight: Annotated[float, typer.Argument(metavar="WEIGHT", help="0.01 to 1000; 1 is usual.", show_default=False)],
    queue: OtherQueue = "",
) -> None:
    """Give a group a larger or a smaller share."""
    with opened(queue) as store:
        store.set_group_weight(group_id, weight)
    out.print(Text(f"{group_id} has {weight:g} times the share of a group of weight 1"))


@app.command()
def limits(
    group_id: GroupId,
    concurrency: Annotated[
        str | None,
        typer.Option(metavar="N", help="At most so many of its jobs run at once; 0 = any number; or default."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="N/TIME", help="At most so many starts in any such time, as in 10/1s; or default."),
    ] = None,
    max_waiting: Annotated[
        str | None, typer.Option(metavar="N", help="Adds beyond so many are refused; 0 = any number; or default.")
    ] = None,
    hold: Annotated[
        str | None, typer.Option(metavar="TIME", help="Nothing of it starts for so long, as in 30s; 0 = go on.")
    ] = None,
    queue: OtherQueue = "",
    as_json: AsJson = False,
) -> None:
    """Show, set or lift what limits a group. `default` = as the queue says for all groups."""
    at_once = None if concurrency is None else whole("--concurrency", concurrency)
    starts = None if rate is None or rate == "default" else RateLimit(*read_rate(rate))
    may_wait = None if max_waiting is None else whole("--max-waiting", max_waiting)
    hold_ms = None if hold is None else duration_ms("--hold", hold)
    with opened(queue) as store:
        if rate is not None:
            store.set_group_rate_limit(group_id, starts)
        if concurrency is not None:
            store.set_group_concurrency(group_id, at_once)
        if max_waiting is not None:
            store.set_group_max_waiting(group_id, may_wait)
        if hold_ms is not None:
            store.rate_limit_group(group_id, hold_ms)
        group = store.get_group(group_id)
    if as_json:
        print_json(group)
    else:
        print_facts(_limits(group))


def _place(group: Group) -> str:
    if group.paused:
        return "paused"
    words = {GroupPlace.RING: "its turn comes", GroupPlace.HELD: "held by a limit", GroupPlace.IDLE: "nothing waits"}
    return words[group.place]


def _limits(group: Group) -> list[tuple[str, str | Text]]:
    starts = "as the queue says" if group.rate_max is None else f"{group.rate_max} in any {group.rate_ms} ms"
    facts: list[tuple[str, str | Text]] = [
        ("at once", _number(group.concurrency)),
        ("starts", starts),
        ("may wait", _number(group.max_waiting)),
    ]
    if group.limited_until is not None:
        facts.append(("on hold until", instant(group.limited_until)))
    return facts


def _number(limit: int | None) -> str:
    if limit is None:
        return "as the queue says"
    return str(limit) if limit else "any number"
