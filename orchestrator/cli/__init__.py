"""The command line: `kargah`."""

from orchestrator.cli.app import main

__all__ = ["main"]
