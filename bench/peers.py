"""Who is compared, in which versions, and how each gets an environment of its own."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / "bench" / ".env"
INSTALL_S = 600

ASYNC = ("hiredis==3.5.0", "uvloop==0.23.0")


class Peer(NamedTuple):
    """A contender: the file that plays it, and what has to be installed for it (nothing: it runs where we do)."""

    name: str
    title: str
    requirements: tuple[str, ...] = ()
    program: str = ""
    options: tuple[str, ...] = ()
    is_node: bool = False
    is_floor: bool = False
    concurrencies: tuple[int, ...] = (1, 32, 100)

    @property
    def folder(self) -> Path:
        """Where its packages are."""
        return ENVIRONMENTS / self.name

    def command(self) -> list[str]:
        """How it is started; the role and its arguments follow."""
        program = self.program or self.name
        if self.is_node:
            return ["node", str(ROOT / "bench" / "contenders" / f"{program}.mjs")]
        python = str(self.folder / "bin" / "python") if self.requirements else sys.executable
        return [python, "-m", f"bench.contenders.{program}"]

    def variables(self) -> dict[str, str]:
        """Its environment."""
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "BENCH_ENV": str(self.folder),
            "BENCH_NAME": self.name,
            "NODE_ENV": "production",
        }


PEERS = (
    Peer("kargah", "**Kargah**"),
    Peer("bullmq", "BullMQ on Node", ("bullmq@6.7.0", "ioredis@5.11.1"), "bullmq_node", is_node=True),
    Peer("bullmq-python", "bullmq-python", ("bullmq==3.4.4", "redis==8.1.0", *ASYNC), "bullmq_python"),
    Peer("dramatiq", "dramatiq", ("dramatiq[redis]==2.2.1", "hiredis==3.5.0")),
    Peer("saq", "saq", ("saq[redis]==0.26.4", "typing_extensions==4.16.0", *ASYNC)),
    Peer("taskiq", "taskiq, streams", ("taskiq==0.13.0", "taskiq-redis==1.2.4", *ASYNC)),
    Peer("streaq", "streaq", ("streaq==7.2.0", "uvloop==0.23.0")),
    Peer("arq", "arq", ("arq==0.28.0", *ASYNC)),
    Peer("rq", "rq", ("rq==3.0.0", "hiredis==3.5.0"), concurrencies=(1,)),
    Peer("celery", "celery, acks late", ("celery[redis]==5.7.0", "hiredis==3.5.0")),
    Peer("floor", "*floor, one by one*", is_floor=True),
    Peer("floor-batched", "*floor, batched*", program="floor", is_floor=True),
)
NAMES = tuple(peer.name for peer in PEERS)


def chosen(names: Iterable[str]) -> list[Peer]:
    """The peers of these names, in the table's order; all if none is named."""
    wanted = set(names)
    if unknown := wanted - set(NAMES):
        raise SystemExit(f"no such contender: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    return [peer for peer in PEERS if not wanted or peer.name in wanted]


def install(peers: Iterable[Peer], report: Callable[[str], None]) -> tuple[list[Peer], dict[str, str]]:
    """Make the environments that are missing; who can run, and why the others cannot."""
    ready: list[Peer] = []
    missing: dict[str, str] = {}
    for peer in peers:
        try:
            _install(peer, report)
        except (OSError, subprocess.SubprocessError) as problem:
            lines = (getattr(problem, "stderr", None) or str(problem)).strip().splitlines()
            missing[peer.name] = lines[-1] if lines else "it could not be installed"
            report(f"{peer.name} cannot be installed: {missing[peer.name]}")
        else:
            ready.append(peer)
    return ready, missing


def _install(peer: Peer, report: Callable[[str], None]) -> None:
    if not peer.requirements:
        return
    stamp = peer.folder / ".installed"
    digest = hashlib.sha256("\n".join((sys.version, *peer.requirements)).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    report(f"installing {peer.name}: {', '.join(peer.requirements)}")
    shutil.rmtree(peer.folder, ignore_errors=True)
    peer.folder.mkdir(parents=True)
    if peer.is_node:
        (peer.folder / "package.json").write_text('{"private": true}\n')
        options = ("--no-audit", "--no-fund", "--save-exact", "--loglevel=error")
        _run(["npm", "install", *options, *peer.requirements], peer.folder)
    else:
        _run([sys.executable, "-m", "venv", str(peer.folder)], peer.folder)
        pip = [str(peer.folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _run([*pip, *peer.requirements], peer.folder)
    stamp.write_text(digest)


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=INSTALL_S)
