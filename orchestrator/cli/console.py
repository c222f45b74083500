"""What the commands share: where they print, which service they talk to."""

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from orchestrator.client import Client
from orchestrator.settings import Settings

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        help="Where the service is. (default: from KARGAH_HOST and KARGAH_PORT)",
        show_default=False,
    ),
]
JobId = Annotated[
    str, typer.Argument(metavar="ID", help="The job's id, as `kargah jobs list` shows it.", show_default=False)
]


def complain(problem: str, advice: str = "") -> None:
    """Say on stderr what is wrong, and what to do."""
    err.print(Text.assemble(("error: ", "bold red"), problem))
    if advice:
        err.print(Text(advice))


def connect(url: str) -> Client:
    """A client of the service at `url`, or of the one the settings tell of."""
    return Client(url or service_url(Settings.from_env()))


def service_url(settings: Settings) -> str:
    """How this machine reaches the service of these settings."""
    if settings.public_url:
        return settings.public_url
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
