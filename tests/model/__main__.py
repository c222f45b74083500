"""`python -m tests.model`: many random histories on all cores, and what they went through."""

import argparse
import os
import secrets
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.instruments.branches import branches
from tests.model.running import EXAMPLES, STEPS, one_round, run


def main() -> int:
    """Run until enough transitions were compared; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="to run the same histories again")
    parser.add_argument("--fixed", action="store_true", help="as many as the test suite, without a seed the same")
    options = parser.parse_args()
    if options.fixed:
        run(EXAMPLES, STEPS, seed_number=options.seed, stops_at_once=True)
        return 0
    options.seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    print(f"seed {options.seed}")
    began, transitions, rules, taken = time.monotonic(), Counter[str](), Counter[str](), Counter[str]()
    with ProcessPoolExecutor(options.processes, max_tasks_per_child=1) as pool:
        first = options.seed
        while transitions.total() < options.transitions:
            numbers = range(first, first + options.processes)
            for answer in pool.map(one_round, numbers):
                if isinstance(answer, str):
                    print(answer)
                    return 1
                transitions, rules, taken = (
                    transitions + answer.transitions,
                    rules + answer.rules,
                    taken + answer.branches,
                )
            first += options.processes
            print(f"{transitions.total():>9,} transitions, {time.monotonic() - began:.0f} s", flush=True)
    report(transitions, rules, taken)
    return 0


def report(transitions: Counter[str], rules: Counter[str], taken: Counter[str]) -> None:
    """Print how often everything was called, ran and was taken."""
    for title, counts in (("calls of a script", transitions), ("runs of a rule", rules)):
        print(f"\n{title}")
        for name, times in counts.most_common():
            print(f"{times:>9,} {name}")
    everything = branches()
    rare = sorted((taken[name], name) for name in everything if taken[name] < 100)
    print(f"\nbranches of the scripts: {len(everything)}, taken: {len(everything & taken.keys())}")
    print("taken less than 100 times:")
    for times, name in rare:
        print(f"{times:>9,} {name}")


if __name__ == "__main__":
    sys.exit(main())
