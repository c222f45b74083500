"""The commands, put together, and what becomes of their errors."""

import sys
from importlib import metadata
from typing import Annotated

import typer

from orchestrator.cli import generate, groups, jobs, queues, schedules, service, store, up, workers
from orchestrator.cli.console import complain
from orchestrator.errors import (
    InvalidOption,
    KargahError,
    RequestRefused,
    ServiceUnreachable,
    StartFailed,
    StoreUnavailable,
)

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 refused or wrong usage, 3 the service cannot be reached, 130 canceled.",
)


def main() -> None:
    """The entry point: runs a command, tells errors of ours in words, and sets the exit code."""
    try:
        app()
    except ServiceUnreachable as problem:
        complain(
            str(problem), "Is the service running? Start it with `make run` or `kargah up`, or name another with --url."
        )
        sys.exit(EXIT_UNREACHABLE)
    except (InvalidOption, RequestRefused) as problem:
        complain(str(problem))
        sys.exit(EXIT_USAGE)
    except StoreUnavailable as problem:
        complain(str(problem), store.ADVICE)
        sys.exit(EXIT_UNREACHABLE)
    except (StartFailed, KargahError) as problem:
        complain(str(problem))
        sys.exit(EXIT_FAILED)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kargah {metadata.version('kargah')}")
        raise typer.Exit


@app.callback()
def kargah(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Kargah turns prompts into pictures, on your own machine.

    Start the service with `kargah up`, then ask for a picture with `kargah generate`.
    """


app.command("generate")(generate.generate)
app.command("up", rich_help_panel="Service")(up.up)
app.command("api", rich_help_panel="Service")(service.api)
app.command("worker", rich_help_panel="Service")(service.worker)
app.command("relay", rich_help_panel="Service")(service.relay)
app.command("status")(service.status)
app.command("models")(service.models)
app.command("webhook-secret")(service.webhook_secret)
app.add_typer(jobs.app, name="jobs")
app.add_typer(queues.app, name="queues", rich_help_panel="Queues")
app.add_typer(groups.app, name="groups", rich_help_panel="Queues")
app.command("workers", rich_help_panel="Queues")(workers.workers)
app.add_typer(schedules.app, name="schedules", rich_help_panel="Queues")
