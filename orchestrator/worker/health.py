"""How a worker is, and what it says of jobs that say nothing themselves."""

from typing import NamedTuple

import msgspec

from orchestrator.job import KeepJobs

MAX_SILENT_S = 5.0
"""A worker asks Redis something at least every 2 s; after so long without an answer it says that it is cut off."""


class Health(NamedTuple):
    """How a worker is.

    is_running: between its start and the end of its stop. is_connected: Redis has answered within the last 5 s;
    silent_s: how long ago it last did (None: never). active: jobs in hand.
    """

    is_running: bool
    is_paused: bool
    is_connected: bool
    silent_s: float | None
    active: int


def keep_rule(completed: bool | int | KeepJobs | None, failed: bool | int | KeepJobs | None) -> bytes:
    """For how long a worker keeps jobs that do not say so, with the names of a header; empty = it says nothing."""
    kept, kept_failed = KeepJobs.of(completed, "remove_on_complete"), KeepJobs.of(failed, "remove_on_fail")
    rule = {"ca": kept.age_s, "cc": kept.count, "fa": kept_failed.age_s, "fc": kept_failed.count}
    said = {name: number for name, number in rule.items() if number is not None}
    return msgspec.json.encode(said) if said else b""
