"""Runs the machine on a server of its own and says what it went through."""

import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import redis
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import get_state_machine_test

from orchestrator.scripts import adding, flows
from tests.instruments.branches import read_counts
from tests.model.machine import Machine
from tests.model.rig import Rig
from tests.model.rules.weighted import ran
from tests.servers import Server

EXAMPLES, STEPS = 180, 50
"""What the test suite runs: the same histories each time."""
OUTBOX_MAX = 4
"""So few that a history gets there."""
IN_ORDER = ("--hash-max-listpack-value", "100000")
"""So that a parent's children come in the order in which they were added, however long their results are."""
ROUND_EXAMPLES, ROUND_STEPS = 150, 60


class Result(NamedTuple):
    """How often each script was called, each rule ran, each branch was taken."""

    transitions: Counter[str]
    rules: Counter[str]
    branches: Counter[str]


def run(examples: int, steps: int, *, seed_number: int | None = None, stops_at_once: bool = False) -> Result:
    """Random histories; the same ones each time where no seed is given. Raises what the first failure raised."""
    phases = [Phase.generate] if stops_at_once else [Phase.generate, Phase.shrink]
    test = get_state_machine_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=seed_number is None,
            database=None,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
    if seed_number is not None:
        test = seed(seed_number)(test)
    Rig.transitions.clear()
    ran.clear()
    with tempfile.TemporaryDirectory(prefix="kargah-model-") as folder:
        server = Server("valkey", Path(folder), *IN_ORDER)
        server.start()
        try:
            Machine.url = server.url
            with patch.object(adding, "OUTBOX_MAX", OUTBOX_MAX), patch.object(flows, "OUTBOX_MAX", OUTBOX_MAX):
                test()
            with redis.Redis.from_url(server.url) as client:
                return Result(Counter(Rig.transitions), Counter(ran), Counter(read_counts(client)))
        finally:
            server.stop()


def one_round(seed_number: int) -> Result | str:
    """The histories of one seed, or how one of them failed, made as short as it can be."""
    try:
        return run(ROUND_EXAMPLES, ROUND_STEPS, seed_number=seed_number)
    except Exception:
        return f"seed {seed_number} fails:\n{traceback.format_exc()}"
