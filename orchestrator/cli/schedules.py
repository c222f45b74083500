"""`kargah schedules`: what is made again and again."""

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.console import out
from orchestrator.cli.store import OtherQueue, opened, opened_all
from orchestrator.cli.tables import AsJson, instant, print_json, print_rows, table_of
from orchestrator.errors import JobNotFound
from orchestrator.queue import MAX_PAGE
from orchestrator.schedule import JobScheduler, RepeatOptions
from orchestrator.sync import Queue

app = typer.Typer(help="See and remove schedules: jobs that are made again and again.", no_args_is_help=True)

MOST = 1000


@app.command("list")
def list_(queue: OtherQueue = "", as_json: AsJson = False) -> None:
    """List the schedules of all queues, or of one; those that are due next first."""
    found: list[tuple[str, JobScheduler]] = []
    if queue:
        with opened(queue) as one:
            found = _schedules_of(one)
    else:
        with opened_all() as queues:
            for each in queues:
                found += _schedules_of(each)
    if as_json:
        print_json([{"queue": name, "schedule": schedule} for name, schedule in found])
        return
    table = table_of("QUEUE", "ID", "EVERY", "NEXT", "MADE", wide="JOB")
    for name, schedule in found:
        next_at = "–" if schedule.next_at is None else instant(schedule.next_at)
        made = str(schedule.made)
        table.add_row(Text(name), Text(schedule.id), Text(_every(schedule.repeat)), next_at, made, Text(schedule.name))
    print_rows(table, "no schedules")


@app.command()
def remove(
    schedule_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    queue: OtherQueue = "",
) -> None:
    """Remove a schedule, with its job that has not started yet. (default queue: the generations')"""
    with opened(queue) as store:
        if not store.remove_job_scheduler(schedule_id):
            raise JobNotFound(f"there is no schedule {schedule_id} in the queue {store.name}")
    out.print("removed")


def _schedules_of(queue: Queue) -> list[tuple[str, JobScheduler]]:
    found: list[tuple[str, JobScheduler]] = []
    while len(found) < MOST:
        page = queue.get_job_schedulers(len(found), MAX_PAGE)
        found += [(queue.name, schedule) for schedule in page]
        if len(page) < MAX_PAGE:
            break
    return found


def _every(repeat: RepeatOptions) -> str:
    if repeat.cron is not None:
        return repeat.cron if repeat.tz == "UTC" else f"{repeat.cron} {repeat.tz}"
    return f"{(repeat.every_ms or 0) / 1000:g}s"
