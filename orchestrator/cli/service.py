"""The single processes, and what can be asked about a service."""

import os
import sys
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from orchestrator import signing_secret
from orchestrator.cli.console import Url, connect, err, out
from orchestrator.settings import Settings


def api() -> None:
    """Run the HTTP api alone, against the Redis of KARGAH_REDIS_URL (or that of a running `kargah up`)."""
    _become("orchestrator.api")


def worker() -> None:
    """Run one worker, against the Redis of KARGAH_REDIS_URL (or that of a running `kargah up`)."""
    _become("workers")


def relay() -> None:
    """Run one webhook relay, against the Redis of KARGAH_REDIS_URL (or that of a running `kargah up`)."""
    _become("webhooks")


def status(url: Url = "") -> None:
    """Say whether the service is ready, and what it has to do."""
    with connect(url) as client:
        counts = client.counts()
        is_ready = counts is not None
        out.print(
            Text.assemble(("ready" if is_ready else "not ready", "green" if is_ready else "red"), f" at {client.url}")
        )
    if counts is None:
        err.print("The api lives, but its Redis does not answer.")
        raise typer.Exit(1)
    for state in ("active", "waiting", "prioritized", "delayed", "completed", "failed", "canceled"):
        if counts.get(state):
            out.print(f"{state:<12} {counts[state]}")


def models(url: Url = "") -> None:
    """List the models of the service; the first is the one it takes when none is named."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("MODEL", "SIZE", "STEPS", "GUIDANCE"):
        table.add_column(heading, no_wrap=True)
    with connect(url) as client:
        for card in client.models():
            table.add_row(Text(card.id), f"{card.width}×{card.height}", str(card.steps), f"{card.guidance_scale:g}")
    out.print(table)


def webhook_secret(
    new: Annotated[
        bool, typer.Option("--new", help="Print a fresh one, for KARGAH_WEBHOOK_SECRET; nothing is stored.")
    ] = False,
) -> None:
    """Print the secret that signs webhooks, for the receivers that verify them.

    It is made at the first start and kept in KARGAH_DATA_DIR.
    """
    out.print(signing_secret.new() if new else signing_secret.load(Settings.from_env()), markup=False)


def _become(module: str) -> None:
    """Run a module in place of this process: `orchestrator` knows the names of the others, and imports none."""
    Settings.from_env()  # complain here, in words
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module])
