"""`python -m tests.mutants`: plants faults in copies of the tree, one at a time, and sees whether the tests notice.

What noticed a fault the last time is tried first, then the model's histories, then other tests; the first failure
ends the matter. Whatever noticed something must pass where there is no fault.
"""

import argparse
import os
import queue
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.mutants.faults import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.stages import (
    PYTEST,
    ROOT,
    copy_tree,
    name_of,
    remember,
    remembered,
    stages_of,
    sure_failure,
)

MAY_SURVIVE = 1 / 30
Copies = queue.SimpleQueue[Path]


class Verdict(NamedTuple):
    """Which stage noticed a fault, by which test if that has a name, else by what; `stage` is empty when none did."""

    mutant: Mutant
    stage: str
    test: str
    command: Sequence[str]
    seconds: float


def main() -> int:
    """Run the mutants; returns 1 when more than one in thirty survives, or the tests fail without any fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only mutants of which the path or the fault has this text")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--forget", action="store_true", help="do not try first what noticed a fault the last time")
    options = parser.parse_args()
    for mutant in MUTANTS:
        mutant.applied((ROOT / "lua" / mutant.path).read_text())
    mutants = [each for each in MUTANTS if options.only in name_of(each)]
    last_time = {} if options.forget else remembered()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kargah-mutants-") as folder:
        copies: Copies = queue.SimpleQueue()
        for number in range(options.processes):
            copies.put(copy_tree(Path(folder, str(number))))
        with ThreadPoolExecutor(options.processes) as pool:
            verdicts = []
            for verdict in pool.map(lambda each: judge(copies, each, last_time.get(name_of(each), "")), mutants):
                verdicts.append(verdict)
                if verdict.stage:
                    remember({name_of(verdict.mutant): verdict.test or verdict.stage}, names(MUTANTS))
            false_alarms = [by for by in pool.map(lambda each: run_in(copies, each), noticers(verdicts)) if by]
    return report(verdicts, false_alarms, time.monotonic() - began)


def judge(copies: Copies, mutant: Mutant, last_time: str) -> Verdict:
    """Plant the fault in a free copy, run the stages until one notices, and take it out again."""
    began, folder = time.monotonic(), copies.get()
    path = folder / "lua" / mutant.path
    text = path.read_text()
    try:
        path.write_text(mutant.applied(text))
        stages = stages_of(mutant, last_time)
        stage, test, by = first_to_notice(folder, stages)
    finally:
        path.write_text(text)
        copies.put(folder)
    verdict = Verdict(mutant, stage, test, stages.get(stage, ()), time.monotonic() - began)
    print(f"{verdict.seconds:5.0f} s  {'noticed ' if by else 'SURVIVED'}  {name_of(mutant)}", flush=True)
    if by:
        print(f"                   by {stage}: {by[:120]}", flush=True)
    return verdict


def first_to_notice(folder: Path, stages: dict[str, Sequence[str]]) -> tuple[str, str, str]:
    """The first stage that fails, its test if that has a name, and what failed; "" where none does."""
    for stage, command in stages.items():
        test, by = sure_failure(folder, command)
        if by:
            return stage, test, by
    return "", "", ""


def noticers(verdicts: Sequence[Verdict]) -> list[Sequence[str]]:
    """All that noticed something, as commands: the tests in one, and the stages that name no test."""
    tests = sorted({each.test for each in verdicts if each.test})
    others = dict.fromkeys(tuple(each.command) for each in verdicts if each.stage and not each.test)
    return [*others, (*PYTEST, *tests)] if tests else [*others]


def run_in(copies: Copies, command: Sequence[str]) -> str:
    """What fails in a copy without a fault, and does so twice."""
    folder = copies.get()
    try:
        return sure_failure(folder, command)[1]
    finally:
        copies.put(folder)


def report(verdicts: Sequence[Verdict], false_alarms: Sequence[str], seconds: float) -> int:
    """Print who noticed how many, and what nobody noticed; returns the exit status."""
    print("\nnoticed by")
    for stage, count in Counter(each.stage for each in verdicts if each.stage).most_common():
        print(f"{count:5}  {stage}")
    survivors = [verdict for verdict in verdicts if not verdict.stage]
    print(f"{len(verdicts) - len(survivors)} of {len(verdicts)} faults were noticed, {seconds:.0f} s; survivors:")
    for verdict in survivors:
        print(f"       {name_of(verdict.mutant)}")
    for by in false_alarms:
        print(f"FAILS WITHOUT ANY FAULT: {by}")
    return bool(false_alarms) or len(survivors) > max(1, MAY_SURVIVE * len(verdicts))


def names(mutants: Sequence[Mutant]) -> set[str]:
    """What all faults are called."""
    return {name_of(each) for each in mutants}


if __name__ == "__main__":
    sys.exit(main())
