"""`python -m webhooks`: one relay process."""

import asyncio
import signal
import sys

from orchestrator import log
from orchestrator.errors import InvalidOption
from orchestrator.settings import Settings
from webhooks.service import serve


def main() -> None:
    """Run by the environment's settings until SIGTERM or SIGINT; exit status 2 for settings that cannot be."""
    try:
        settings = Settings.from_env()
        log.configure(settings.log_format)
        asyncio.run(_until_signal(settings))
    except InvalidOption as problem:
        print(f"kargah relay: {problem}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


async def _until_signal(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)


if __name__ == "__main__":
    main()
