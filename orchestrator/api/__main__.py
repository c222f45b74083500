"""`python -m orchestrator.api`: one api process."""

import sys

from orchestrator import log
from orchestrator.api import serve
from orchestrator.errors import InvalidOption
from orchestrator.settings import Settings


def main() -> None:
    """Serve by the environment's settings; settings that cannot be end it with a sentence."""
    try:
        settings = Settings.from_env()
        log.configure(settings.log_format)
        serve(settings)
    except InvalidOption as problem:
        sys.exit(f"kargah api: {problem}")


if __name__ == "__main__":
    main()
