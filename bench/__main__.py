"""Compares Kargah with its peers: `python -m bench`."""

import argparse
import asyncio
import sys
from pathlib import Path

from bench import compare, peers, server, table, workloads


def main() -> int:
    """Run what the command line asks for; the exit status."""
    options = parse(sys.argv[1:])
    return compare_peers(options)


def parse(words: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small counts, one round: to see that it works")
    parser.add_argument("--rounds", type=int, help="how often each is played (3; --quick: 1)")
    parser.add_argument("--only", type=_names, default=(), metavar="kargah,bullmq", help=", ".join(peers.NAMES))
    names = [workload.name for workload in workloads.WORKLOADS]
    parser.add_argument("--workload", type=_names, default=(), metavar="add64,c32", help=", ".join(names))
    parser.add_argument("--server", choices=("valkey", "redis"), default="valkey")
    parser.add_argument("--pin", action="store_true", help="the server on core 0, contenders on core 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument("--count", type=int, help="at most so many jobs in any workload")
    options = parser.parse_args(words)
    if unknown := set(options.workload) - set(names):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if options.rounds is not None and not 1 <= options.rounds <= 25:
        parser.error("--rounds must be 1 to 25")
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def sizes_of(options: argparse.Namespace) -> workloads.Sizes:
    """How much is done."""
    sizes = workloads.QUICK if options.quick else workloads.Sizes()
    if not options.count:
        return sizes
    small = {name: min(value, options.count) for name, value in sizes._asdict().items() if name != "limit_s"}
    return sizes._replace(**small)


def compare_peers(options: argparse.Namespace) -> int:
    """Kargah and its peers."""
    ready, missing = peers.install(peers.chosen(options.only), say)
    chosen = [each for each in workloads.WORKLOADS if not options.workload or each.name in options.workload]
    server_core, client_core = (0, 1) if options.pin else (None, None)
    with server.running(options.server, server_core) as running:
        stage = workloads.Stage(running, sizes_of(options), client_core)
        run = asyncio.run(compare.compare(stage, ready, chosen, options.rounds, say))
    run.failures |= {name: f"not installed: {problem}" for name, problem in missing.items()}
    print(table.render(run))
    if options.json:
        run.write(options.json)
    return 0 if run.results and not any(name.startswith("kargah") for name in run.failures) else 1


def say(line: str) -> None:
    """Show how far it is."""
    print(line, file=sys.stderr, flush=True)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


if __name__ == "__main__":
    sys.exit(main())
