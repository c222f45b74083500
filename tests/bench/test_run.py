"""A whole small run, as `make bench` makes it."""

import json
import subprocess
import sys
from pathlib import Path

from bench.peers import ROOT

RUN_S = 100


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bench", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S)


WORKLOADS = "add64,bulk,c32,pickup,gpu,memory"  # the others are these with another number


def test_kargah_plays_every_kind_of_workload_and_nothing_goes_astray(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = run("--quick", "--only", "kargah", "--count", "40", "--workload", WORKLOADS, "--json", str(figures))
    assert done.returncode == 0, done.stderr
    assert "Jobs that ran twice or not at all, in all rounds: none." in done.stdout
    assert "FAILED" not in done.stdout + done.stderr
    results = json.loads(figures.read_bytes())["results"]
    assert set(results) == set(WORKLOADS.split(","))
    for workload, by_peer in results.items():
        assert set(by_peer) == {"kargah"}, workload
        assert all(value > 0 for name, value in by_peer["kargah"][0].items() if name not in ("twice", "missing"))
    assert results["c32"]["kargah"][0]["server_us"] > 0


def test_the_floors_play_too() -> None:
    done = run("--quick", "--only", "floor,floor-batched", "--count", "40", "--workload", "add64,c32")
    assert "FAILED" not in done.stdout + done.stderr
    assert "| *floor, one by one* |" in done.stdout
    assert "| *floor, batched* |" in done.stdout


def test_a_wrong_name_is_refused_before_anything_is_started() -> None:
    done = run("--workload", "c33")
    assert done.returncode == 2
    assert "no such workload: c33; there are add1, add64" in done.stderr
