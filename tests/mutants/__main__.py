"""`python -m tests.mutants`: plants faults in copies of the tree, one at a time, and sees whether the tests notice."""

import argparse
import multiprocessing
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import lua
from tests.model.running import EXAMPLES, STEPS, run
from tests.mutants.faults import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("lua", "orchestrator", "tests", "pyproject.toml")
MAY_SURVIVE = 1 / 30
LIMIT_S = 240
"""Of a stage; a fault that makes the tests hang is noticed, too."""
PYTEST = ("pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=60")
OTHER_HISTORIES = ("tests.model", "--fixed", "--seed", "2")
TWICE = (*PYTEST, "tests/lua/test_repeat_safety.py", "-k", "twice and valkey")
ALL_TESTS = tuple(sorted({path for mutant in MUTANTS for path in mutant.tests}))


class Verdict(NamedTuple):
    """Which stage noticed a fault, by which test; `by` is empty when none did."""

    mutant: Mutant | None
    by: str
    seconds: float


def main() -> int:
    """Run the mutants; returns 1 when more than one in thirty survives, or a table that does not fit the scripts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only mutants of which the path or the fault has this text")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    mutants = [each for each in MUTANTS if options.only in f"{each.path} {each.fault}"]
    for mutant in MUTANTS:
        mutant.applied((ROOT / "lua" / mutant.path).read_text())
    began = time.monotonic()
    with multiprocessing.get_context("fork").Pool(options.processes, maxtasksperchild=1) as pool:
        verdicts = list(pool.imap(in_the_model, [None, *mutants]))
    plain, *verdicts = judge_by_tests(verdicts, options.processes)
    if plain.by:
        print(f"the tests fail without any fault: {plain.by}")
        return 1
    survivors = [verdict for verdict in verdicts if not verdict.by]
    print(
        f"\n{len(verdicts) - len(survivors)} of {len(verdicts)} faults were noticed, {time.monotonic() - began:.0f} s"
    )
    return len(survivors) > max(1, MAY_SURVIVE * len(verdicts))


def in_the_model(mutant: Mutant | None) -> Verdict:
    """Run the model's histories against scripts with the fault; in a process of its own, which forgets it."""
    began, read = time.monotonic(), lua._read
    lua._read = lambda path: mutant.applied(read(path)) if mutant and path == mutant.path else read(path)
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT_S)
    by = ""
    try:
        run(EXAMPLES, STEPS, stops_at_once=True)
    except Exception as problem:
        by = f"model: {type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}"
    verdict = Verdict(mutant, by, time.monotonic() - began)
    if by or mutant is None:
        tell(verdict)
    return verdict


def give_up(*_: object) -> None:
    """A fault that makes the tests hang is noticed, too."""
    raise TimeoutError(f"nothing came within {LIMIT_S} s")


def judge_by_tests(verdicts: Sequence[Verdict], processes: int) -> list[Verdict]:
    """Run the tests where the model noticed nothing."""
    with tempfile.TemporaryDirectory(prefix="kargah-mutants-") as folder:
        copies = queue.SimpleQueue[Path]()
        for number in range(processes):
            copies.put(copy_tree(Path(folder, str(number))))
        with ThreadPoolExecutor(processes) as pool:
            return list(pool.map(lambda verdict: verdict if verdict.by else judge(copies, verdict.mutant), verdicts))


def tell(verdict: Verdict) -> None:
    """Print what became of a fault."""
    mutant = verdict.mutant
    word = "noticed " if verdict.by else "SURVIVED" if mutant else "fine    "
    fault = f"{mutant.path}: {mutant.fault}" if mutant else "no fault at all"
    print(f"{verdict.seconds:5.0f} s  {word}  {fault}", flush=True)
    if verdict.by:
        print(f"                   by {verdict.by[:120]}", flush=True)


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


def judge(copies: "queue.SimpleQueue[Path]", mutant: Mutant | None) -> Verdict:
    """Plant the fault in a free copy, run the stages until one notices, and take it out again."""
    began, folder = time.monotonic(), copies.get()
    path = folder / "lua" / (mutant.path if mutant else "add_jobs.lua")
    text = path.read_text()
    try:
        path.write_text(mutant.applied(text) if mutant else text)
        stages = stages_of(mutant)
        by = next((f"{stage}: {by}" for stage in stages if (by := sure_failure(folder, stages[stage]))), "")
    finally:
        path.write_text(text)
        copies.put(folder)
    verdict = Verdict(mutant, by, time.monotonic() - began)
    tell(verdict)
    return verdict


def stages_of(mutant: Mutant | None) -> dict[str, Sequence[str]]:
    """What may notice a fault that the model's usual histories did not."""
    own = (*PYTEST, "-k", "not redis", *(mutant.tests if mutant else ALL_TESTS))
    return {"own tests": own, "other histories": OTHER_HISTORIES, "scripts": TWICE}


def sure_failure(folder: Path, command: Sequence[str]) -> str:
    """What failed; a test that fails once and then not, as on a busy machine, does not count."""
    unsure: list[str] = []
    while by := failure(folder, [*command, *unsure]):
        word, _, rest = by.partition(" ")
        test = rest.partition(" - ")[0]
        if word != "FAILED" or len(unsure) > 5 or failure(folder, [*PYTEST, test]):
            return by
        unsure += ["--deselect", test]
    return ""


def failure(folder: Path, command: Sequence[str]) -> str:
    """What failed, or "" when nothing did."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
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
    if process.returncode == 0:
        return ""
    lines = [line for line in output.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED", "ERROR", "AssertionError"))]
    return (named or lines or ["no output"])[-1 if command[0] == "pytest" else 0]


if __name__ == "__main__":
    sys.exit(main())
