"""Groups of jobs, and what a worker or a waiting job may say about turns."""

from enum import StrEnum
from typing import Any

import msgspec

from orchestrator.job import JobState, check_int

MAX_CONCURRENCY = 1_000_000
MAX_STARTS = 10_000
MAX_WINDOW_MS = 86_400_000
MAX_WAITING = 100_000_000


class RateLimit(msgspec.Struct, frozen=True):
    """At most `max_starts` starts in any window of `duration_ms`, wherever it begins."""

    max_starts: int
    duration_ms: int

    def check(self, field: str) -> None:
        """Raise `InvalidOption` for what cannot be."""
        check_int(f"{field}.max_starts", self.max_starts, 1, MAX_STARTS)
        check_int(f"{field}.duration_ms", self.duration_ms, 1, MAX_WINDOW_MS)


class Batch(msgspec.Struct, frozen=True):
    """Up to `size` jobs of one `batch_key` at a time; fewer than `min_size` only after `linger_ms`.

    Source: BullMQ Pro's batches.
    """

    size: int
    min_size: int = 1
    linger_ms: int = 0

    def check(self, field: str = "batch") -> None:
        """Raise `InvalidOption` for what cannot be."""
        check_int(f"{field}.size", self.size, 1, 100)
        check_int(f"{field}.min_size", self.min_size, 1, self.size)
        check_int(f"{field}.linger_ms", self.linger_ms, 0, 3_600_000)


class GroupPlace(StrEnum):
    """Where a group stands: in the ring, held (paused or at a limit), or idle (no job of it waits)."""

    RING = "ring"
    HELD = "held"
    IDLE = "idle"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group as it was when it was read. Limits of None are as the queue's defaults say; 0 = none."""

    id: str
    place: GroupPlace = GroupPlace.IDLE
    waiting: int = 0
    active: int = 0
    weight: float = 1.0
    tag: float = 0.0
    concurrency: int | None = None
    rate_max: int | None = None
    rate_ms: int | None = None
    max_waiting: int | None = None
    limited_until: int | None = None
    ageing: int = 0
    paused: bool = False


class WhyWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job has not started, as of one instant.

    ahead: jobs that start before it: exact within its group, otherwise an estimate (`is_estimate`).
    held_by: what keeps it from starting besides those: `delayed`, `children`, `paused`, `limited`, `concurrency`,
        `group_paused`, `group_limited`, `group_busy`, `no_worker`; empty when it only waits for its turn.
    due_at: when the named limit or delay ends, where that is known; ms since the epoch.
    eta_ms: until it starts, by the running times of the newest completed jobs; None without any.
    """

    state: JobState
    group: str | None = None
    ahead: int | None = None
    is_estimate: bool = False
    held_by: tuple[str, ...] = ()
    due_at: int | None = None
    eta_ms: int | None = None


def read_group(reply: list[Any]) -> Group:
    """A group, as the getters answer it: id, waiting, then name, value …"""
    gid, waiting, *flat = reply
    record = {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
    return msgspec.convert(record | {"id": gid.decode(), "waiting": waiting}, Group, strict=False)


def read_why(reply: list[Any], workers: int) -> WhyWaiting | None:
    """What `get_position` answers, in words."""
    if not reply:
        return None
    found = {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
    state = JobState(found["state"])
    ends = [int(found[name]) for name in ("due_at", "limited_until", "group_limited_until") if name in found]
    reasons = {
        "delayed": state == JobState.DELAYED,
        "children": state == JobState.WAITING_CHILDREN,
        "paused": "paused" in found,
        "limited": "limited_until" in found,
        "concurrency": "maxed" in found,
        "group_paused": "group_paused" in found,
        "group_limited": "group_limited_until" in found,
        "group_busy": found.get("group_place") == "held" and not found.keys() & {"group_paused", "group_limited_until"},
        "no_worker": workers == 0,
    }
    is_open = not state.is_finished and state != JobState.ACTIVE
    ahead, recent = int(found.get("ahead", 0)), int(found.get("recent", 0))
    eta_ms = None
    if recent and state == JobState.WAITING:
        eta_ms = round((ahead + 1) * int(found["recent_ms"]) / recent / max(int(found["active"]), 1))
    return WhyWaiting(
        state=state,
        group=found.get("group"),
        ahead=ahead if "ahead" in found else None,
        is_estimate=found.get("is_estimate") == "1",
        held_by=tuple(reason for reason, holds in reasons.items() if holds) if is_open else (),
        due_at=max(ends, default=None),
        eta_ms=eta_ms,
    )
