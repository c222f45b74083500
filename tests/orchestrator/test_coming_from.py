"""The page for those who come from other queues names only what there is."""

import inspect
import re
from pathlib import Path

import pytest
import typer.main

import orchestrator
import orchestrator.sync
from orchestrator.cli.app import app

PAGE = (Path(orchestrator.__file__).parent / "COMING_FROM.md").read_text()
ROWS = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row[1])})


def _commands() -> set[str]:
    group = typer.main.get_command(app)
    return {f"kargah {name}" for name in group.commands}  # type: ignore[attr-defined]


def _parameters(name: str, there: object) -> list[str]:
    """The names of what is called, as in `JobOptions(delay_ms=…)`."""
    return list(inspect.signature(there).parameters)  # type: ignore[arg-type]


def test_the_page_has_names() -> None:
    assert len(NAMES) > 60


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_ours_exists(name: str) -> None:
    if name.startswith("kargah "):
        assert name in _commands()
        return
    called = re.fullmatch(r"(\w+)\((.*)\)", name)
    path, _, rest = (called[1] if called else name).removeprefix("orchestrator.sync.").partition(".")
    there: object = getattr(orchestrator.sync if name.startswith("orchestrator.sync.") else orchestrator, path)
    if rest:
        there = getattr(there, rest)
    if called:
        given = re.findall(r"(\w+)=", called[2])
        assert given
        assert set(given) <= set(_parameters(name, there))


def test_what_the_traps_name_are_options() -> None:
    for name in ("timeout_ms", "remove_on_complete"):
        assert name in _parameters("JobOptions", orchestrator.JobOptions)
    assert "default_job_options" in _parameters("Queue", orchestrator.Queue)
