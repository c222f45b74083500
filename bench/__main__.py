"""Measures Kargah: `python -m bench [COMMAND] [options]`.

Commands: compare (the default: with its peers, in one run), growth, progress, fleet, profile, all of these (all);
instructions (of the server for a job, counted by valgrind), and api (how fast the service answers).
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from bench import api_latency, compare, fleet, growth, instructions, peers, profiling, progress, table
from bench.server import Server, running
from bench.workloads import QUICK, WORKLOADS, Sizes, Stage

MAX_ROUNDS = 25
FLEET_PEERS = ("kargah", "bullmq")
COUNTS = {"progress": 10_000, "fleet": 20_000, "profile": 10_000, "instructions": 320}
QUICK_COUNTS = {"progress": 1000, "fleet": 4000, "profile": 2000, "instructions": 96}


def main() -> int:
    """Do what the command line asks for; the exit status."""
    if sys.argv[1:2] == ["api"]:
        return asyncio.run(api_latency.main(sys.argv[2:]))
    options = parse(sys.argv[1:])
    if options.command == "instructions":
        return show_instructions(options)
    wanted = list(COMMANDS) if options.command == "all" else [options.command]
    failures = 0
    with running(options.server, 0 if options.pin else None) as server:
        for name in wanted:
            try:
                failures += COMMANDS[name](server, options)
            except TimeoutError:
                failures += 1
                say(f"{name} was not over in time")
    return 1 if failures else 0


def parse(words: list[str]) -> argparse.Namespace:
    """The options."""
    names = [workload.name for workload in WORKLOADS]
    description = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=description[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=(*COMMANDS, "all", "instructions", "api"), default="compare")
    parser.add_argument("--quick", action="store_true", help="small counts and one round, to see that it works")
    parser.add_argument("--rounds", type=int, help="how often each is played (3; with --quick 1)")
    parser.add_argument("--only", type=_names, default=(), metavar="NAME,…", help="of " + ", ".join(peers.NAMES))
    parser.add_argument("--workload", type=_names, default=(), metavar="NAME,…", help="of " + ", ".join(names))
    parser.add_argument("--server", choices=("valkey", "redis"), default="valkey")
    parser.add_argument("--pin", action="store_true", help="the server on core 0, contenders on core 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures of `compare` there, too")
    parser.add_argument("--count", type=int, help="at most so many jobs in any workload")
    options = parser.parse_args(words)
    if unknown := set(options.workload) - set(names):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if options.rounds is not None and not 1 <= options.rounds <= MAX_ROUNDS:
        parser.error(f"--rounds must be 1 to {MAX_ROUNDS}")
    if options.count is not None and options.count < 1:
        parser.error("--count must be at least 1")
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


# ── commands: each answers how much failed ───────────────────────────────────────────────────────────


def compare_peers(server: Server, options: argparse.Namespace) -> int:
    """Kargah and its peers, in turns."""
    ready, missing = peers.install(peers.chosen(options.only), say)
    chosen = [each for each in WORKLOADS if not options.workload or each.name in options.workload]
    stage = Stage(server, sizes_of(options), 1 if options.pin else None)
    run = asyncio.run(compare.compare(stage, ready, chosen, options.rounds, say))
    run.failures |= {name: f"not installed: {problem}" for name, problem in missing.items()}
    show(table.render(run))
    if options.json:
        run.write(options.json)
    return sum(name.startswith(table.OURS) for name in run.failures) + (not run.results)


def sizes_of(options: argparse.Namespace) -> Sizes:
    """How much `compare` does."""
    sizes = QUICK if options.quick else Sizes()
    if not options.count:
        return sizes
    small = {name: min(value, options.count) for name, value in sizes._asdict().items() if name != "limit_s"}
    return sizes._replace(**small)


def show_growth(server: Server, options: argparse.Namespace) -> int:
    """What is there does not matter, or does it?"""
    largest = options.count or (growth.SIZES[1] if options.quick else growth.SIZES[2])
    sizes = sorted({min(size, largest) for size in growth.SIZES})
    show(growth.render(asyncio.run(growth.growth(server.kind, sizes, say))))
    return 0


def show_progress(server: Server, options: argparse.Namespace) -> int:
    """Events to watchers."""
    show(progress.render(asyncio.run(progress.progress(server, count_of(options, "progress")))))
    return 0


def show_fleet(server: Server, options: argparse.Namespace) -> int:
    """Adding and processing at once."""
    ready, _ = peers.install(peers.chosen(options.only or FLEET_PEERS), say)
    stage = Stage(server, sizes_of(options), 1 if options.pin else None)
    count = count_of(options, "fleet")
    show(fleet.render(asyncio.run(fleet.fleet(stage, ready, count, say))))
    return 0


def show_profile(server: Server, options: argparse.Namespace) -> int:
    """Where the time goes."""
    show(profiling.render(asyncio.run(profiling.profile(server, count_of(options, "profile")))))
    return 0


def show_instructions(options: argparse.Namespace) -> int:
    """What jobs cost whatever else the machine does."""
    found = asyncio.run(instructions.instructions(options.server, count_of(options, "instructions"), say))
    show(instructions.render(found))
    return 0


def count_of(options: argparse.Namespace, command: str) -> int:
    """How many jobs or events a command takes."""
    count = (QUICK_COUNTS if options.quick else COUNTS)[command]
    return min(count, options.count or count)


COMMANDS: dict[str, Callable[[Server, argparse.Namespace], int]] = {
    "compare": compare_peers,
    "growth": show_growth,
    "progress": show_progress,
    "fleet": show_fleet,
    "profile": show_profile,
}


def show(text: str) -> None:
    """Print a result."""
    print(text + "\n", flush=True)


def say(line: str) -> None:
    """Show how far it is."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it takes everything along, as Ctrl-C does
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
