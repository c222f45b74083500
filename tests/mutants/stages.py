"""What may notice a fault, cheapest first, and how a stage is run in a copy of the tree."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("lua", "orchestrator", "tests", "pyproject.toml")
LIMIT_S = 240
"""Of a stage; a fault that makes the tests hang is noticed, too."""
PYTEST = ("pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=60")
HISTORIES = "histories"
STAGES = {
    HISTORIES: ("tests.model", "--fixed"),
    "scripts": (*PYTEST, "tests/lua/test_repeat_safety.py", "-k", "twice and valkey"),
    "other histories": ("tests.model", "--fixed", "--seed", "2"),
}
MEMORY = Path(__file__).parent / "noticed.json"
"""What noticed a fault the last time, where that was not the usual histories."""


def name_of(mutant: Mutant) -> str:
    """What a fault is called."""
    return f"{mutant.path}: {mutant.fault}"


def remembered() -> dict[str, str]:
    """Fault → a stage, or a test."""
    found: dict[str, str] = json.loads(MEMORY.read_text()) if MEMORY.exists() else {}
    return found


def remember(noticed: dict[str, str], known: set[str]) -> None:
    """Add to the memory, and drop what is no fault any more."""
    kept = {**remembered(), **noticed}
    lines = {name: by for name, by in sorted(kept.items()) if name in known and by != HISTORIES}
    MEMORY.write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n")


def stages_of(mutant: Mutant, last_time: str) -> dict[str, Sequence[str]]:
    """What is run until something fails. `last_time`: what noticed this fault then, or ""."""
    stages: dict[str, Sequence[str]] = {}
    if last_time in STAGES:
        stages[last_time] = STAGES[last_time]
    elif last_time:
        stages["last time's test"] = (*PYTEST, last_time)
    own = (*PYTEST, "-k", "not redis", *mutant.tests)
    return stages | {HISTORIES: STAGES[HISTORIES], "own tests": own} | STAGES


def copy_tree(folder: Path) -> Path:
    """A copy of what the tests need, to be broken at will."""
    folder.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "static", "browser", "e2e")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


def sure_failure(folder: Path, command: Sequence[str]) -> tuple[str, str]:
    """The test that failed, if it has a name, and what failed.

    A test that fails once and then not, as on a busy machine, does not count.
    """
    unsure: list[str] = []
    while by := failure(folder, [*command, *unsure]):
        word, _, rest = by.partition(" ")
        test = rest.partition(" - ")[0] if word == "FAILED" else ""
        if not test or len(unsure) > 5 or failure(folder, [*PYTEST, test]):
            return test, by
        unsure += ["--deselect", test]
    return "", ""


def failure(folder: Path, command: Sequence[str]) -> str:
    """What failed, or "" when nothing did."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"nothing came within {LIMIT_S} s"
    if process.returncode == 0 or "no tests ran" in output:  # a test that was remembered may be gone
        return ""
    lines = [line for line in output.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED", "ERROR", "AssertionError"))]
    return (named or lines or ["no output"])[-1 if command[0] == "pytest" else 0]
