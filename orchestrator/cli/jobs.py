"""`kargah jobs`: look at generations, or at the jobs of any queue; cancel, retry, promote and remove them.

Generations are asked of the service; with `--queue`, and for what the service does not offer, Redis itself is asked.
"""

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.children import MAX_DEPTH
from orchestrator.cli import queue_jobs
from orchestrator.cli.console import JobId, Url, connect, out
from orchestrator.cli.store import opened
from orchestrator.cli.tables import (
    AsJson,
    age,
    colored,
    instant,
    print_event,
    print_facts,
    print_json,
    print_rows,
    table_of,
)
from orchestrator.client import GenerationView
from orchestrator.job import JobState

app = typer.Typer(
    help="Look at generations, or with --queue at the jobs of any queue; cancel, retry, promote and remove them.",
    no_args_is_help=True,
)

Queue = Annotated[
    str,
    typer.Option(
        "--queue",
        "-q",
        metavar="QUEUE",
        help="Jobs of this queue, read from Redis itself, instead of generations.",
        show_default=False,
    ),
]


class Status(StrEnum):
    """The states one may ask for."""

    WAITING = "waiting"
    DELAYED = "delayed"
    WAITING_CHILDREN = "waiting-children"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


@app.command("list")
def list_(
    status: Annotated[Status | None, typer.Option(help="Only these.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")] = 20,
    as_json: AsJson = False,
    queue: Queue = "",
    url: Url = "",
) -> None:
    """List generations: those under way first, then the newest finished ones."""
    if queue:
        queue_jobs.list_jobs(queue, None if status is None else JobState(status), limit, as_json)
        return
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
        print_json(found)
        return
    table = table_of("ID", "STATUS", "AGE", wide="PROMPT")
    for each in found:
        table.add_row(each.id, colored(each.status), age(each.created_at), Text(each.input.prompt))
    print_rows(table, "no generations")


@app.command()
def show(job_id: JobId, as_json: AsJson = False, queue: Queue = "", url: Url = "") -> None:
    """Show one generation with all that is known of it."""
    if queue:
        queue_jobs.show_job(queue, job_id, as_json)
        return
    with connect(url) as client:
        generation = client.get(job_id)
    if as_json:
        print_json(generation)
    else:
        print_facts(_facts(generation))


@app.command()
def why(job_id: JobId, as_json: AsJson = False, queue: Queue = "") -> None:
    """Say why a job has not started: what comes before it, what holds it, and about when it starts."""
    queue_jobs.show_why(queue, job_id, as_json)


@app.command()
def tree(
    job_id: JobId,
    depth: Annotated[int, typer.Option(min=1, max=MAX_DEPTH, help="How many levels.")] = 10,
    as_json: AsJson = False,
    queue: Queue = "",
) -> None:
    """Show a job of a flow and the jobs below it, at most 500."""
    queue_jobs.show_tree(queue, job_id, depth, as_json)


@app.command()
def cancel(job_id: JobId, queue: Queue = "", url: Url = "") -> None:
    """Cancel a generation: at once if it waits, within a step if it runs."""
    if queue:
        with opened(queue) as store:
            state = store.cancel(job_id, by="kargah jobs cancel").state
    else:
        with connect(url) as client:
            state = client.cancel(job_id).status
    out.print("canceled" if state is JobState.CANCELED else "canceling")


@app.command()
def retry(job_id: JobId, queue: Queue = "", url: Url = "") -> None:
    """Run a finished generation again, with the same seed."""
    if queue:
        with opened(queue) as store:
            state = store.retry(job_id).state
    else:
        with connect(url) as client:
            state = client.retry(job_id).status
    out.print(colored(state))


@app.command()
def promote(job_id: JobId, queue: Queue = "") -> None:
    """End the delay of a job: it waits for a worker from now on, by its priority."""
    with opened(queue) as store:
        out.print(colored(store.promote(job_id).state))


@app.command()
def remove(job_id: JobId, queue: Queue = "", url: Url = "") -> None:
    """Remove a generation and its pictures. One that runs must be canceled first."""
    if queue:
        with opened(queue) as store:
            was_there = store.remove(job_id)
    else:
        was_there = True
        with connect(url) as client:
            client.remove(job_id)
    out.print("removed" if was_there else "there was no such job")


@app.command()
def events(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it is finished.")] = False,
    queue: Queue = "",
    url: Url = "",
) -> None:
    """Show all that happened to a generation, one line for each event."""
    if queue:
        queue_jobs.show_events(queue, job_id, follow)
        return
    with connect(url) as client:
        last_id = "0-0"
        for event in client.history(job_id):
            print_event(event.type, event.data)
            last_id = event.id or last_id
        if follow:
            for event in client.follow(job_id, last_id):
                print_event(event.type, event.data)


@app.command()
def logs(job_id: JobId, queue: Queue = "") -> None:
    """Show what a job's processor logged. (What happened to it: `kargah jobs events`.)"""
    queue_jobs.show_lines(queue, job_id)


def _facts(generation: GenerationView) -> list[tuple[str, str | Text]]:
    given = generation.input
    facts: list[tuple[str, str | Text]] = [
        ("id", generation.id),
        ("status", colored(generation.status)),
        ("prompt", given.prompt),
        ("model", given.model),
        (
            "picture",
            f"{given.width}×{given.height}, {given.steps} steps, guidance {given.guidance_scale:g}, seed {given.seed}",
        ),
        ("attempt", f"{generation.attempt} of {generation.attempts}, run {generation.run}"),
        ("created", instant(generation.created_at)),
    ]
    if given.negative_prompt:
        facts.insert(3, ("negative", given.negative_prompt))
    for name in ("started", "finished", "expires"):
        moment = getattr(generation, f"{name}_at")
        if moment is not None:
            facts.append((name, instant(moment)))
    if generation.progress is not None and not generation.status.is_finished:
        facts.append(("progress", f"{generation.progress.phase}, {generation.progress.fraction:.0%}"))
    if generation.error is not None:
        facts.append(("error", f"{generation.error.message} ({generation.error.kind})"))
    facts.extend(("image", picture.url) for picture in generation.images)
    return facts
