"""What holds of every queue at every instant (I1, I2, I4, I6, I7, I11, I12 of shared/reliability.md)."""

from typing import Any

import msgspec

from orchestrator.events import TERMINAL, Event, id_key
from orchestrator.queue import Queue
from tests.dump import Dump, dump

SETS = {
    "waiting": "wait",
    "delayed": "delayed",
    "active": "active",
    "waiting-children": "waiting_children",
    "completed": "completed",
    "failed": "failed",
    "canceled": "canceled",
}
FINISHED = ("completed", "failed", "canceled")
NEXT = {
    None: {"added"},
    "waiting": {"active", "waiting-children", "canceled", "failed", "priority"},
    "delayed": {"waiting", "waiting-children", "canceled", "failed", "priority"},
    "waiting-children": {"waiting", "delayed", "canceled", "failed", "priority"},
    "active": {
        *("progress", "milestone", "delayed", "waiting", "waiting-children", "stalled", "canceling", "priority"),
        *FINISHED,
    },
    "stalled": {"waiting", "waiting-children", "failed", "canceled"},
    "completed": {"retried"},
    "failed": {"retried"},
    "canceled": {"retried"},
}
MAX_EVENT_BYTES = 4096


async def check_queue(queue: Queue) -> Dump:
    """Assert the invariants of an idle or halted queue; returns what it holds."""
    found = await dump(queue.client, queue.keys.prefix)
    now_ms = await _now_ms(queue)
    due = {member for state in FINISHED for member, at in found.get(f"expires:{state}", []) if at <= now_ms}
    places = _places(found)
    for job_id, states in places.items():
        if job_id in due:
            continue
        assert len(states) == 1, f"{job_id} is in {states}"
        record = found.get(f"state:{job_id}")
        assert record is not None, f"{job_id} is in {states} without a record"
        assert f"job:{job_id}" in found, f"{job_id} has no definition"
        assert record["s"] == states[0], f"{job_id} is in {states} and says {record['s']}"
        assert ("l" in record) or states[0] != "active"
    for key in found:
        kind, _, job_id = key.partition(":")
        if kind in ("job", "state", "log", "lines", "children"):
            assert job_id in places, f"{key} belongs to no job"
    _check_order(found)
    _check_children(found, due)
    await _check_counts(queue, found, due)
    for job_id in places:
        if job_id not in due:
            check_history(await queue.get_history(job_id))
    return found


def check_history(history: list[Event]) -> None:
    """Assert that events are numbered without a gap, in order, on a legal path, with one end for each run."""
    assert [event.seq for event in history] == list(range(1, len(history) + 1)), history
    keys = [id_key(event.id) for event in history]
    assert keys == sorted(set(keys))
    state: str | None = None
    run = 1
    for event in history:
        assert event.type in NEXT[state], f"{event.type} after {state}: {[each.type for each in history]}"
        assert event.run == (run + 1 if event.type == "retried" else run)
        run = event.run
        if event.type in ("added", "retried"):
            state = event.fields["state"]
        elif event.type not in ("progress", "milestone", "canceling", "priority"):
            state = event.type
        assert len(event.encode()) <= MAX_EVENT_BYTES
    for number in range(1, run):
        assert sum(event.type in TERMINAL for event in history if event.run == number) == 1
    assert sum(event.type in TERMINAL for event in history if event.run == run) <= 1


def _places(found: Dump) -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for state, key in SETS.items():
        for member, _ in found.get(key, []):
            job_id = member[17:] if state in ("waiting", "delayed") else member
            places.setdefault(job_id, []).append(state)
    return places


def _check_order(found: Dump) -> None:
    """The member of a waiting job is its place, and its score its priority."""
    for key in ("wait", "delayed"):
        for member, score in found.get(key, []):
            record: dict[str, Any] = found[f"state:{member[17:]}"]
            assert int(member[:16], 16) == int(record["q"])
            if key == "delayed":
                assert "u" in record
            else:
                header = msgspec.json.decode(found[f"job:{member[17:]}"]["def"].partition("\n")[0])
                assert score == int(record.get("p", header.get("p", 0)))
    for job_id, _ in found.get("deadlines", []):
        assert found[f"state:{job_id}"]["s"] in ("waiting", "delayed", "waiting-children")


def _check_children(found: Dump, due: set[str]) -> None:
    """A parent's record counts its children; one that does not run waits for them exactly while some are pending."""
    for key, record in found.items():
        kind, _, job_id = key.partition(":")
        if kind != "state" or job_id in due:
            continue
        kinds = [known[0] for known in found.get(f"children:{job_id}", {}).values()]
        assert [int(record.get(name, 0)) for name in ("ch", "cd", "ci")] == [kinds.count(each) for each in "pci"], (
            job_id
        )
        waits = kinds.count("p") > 0 and "cn" not in record
        if record["s"] in ("waiting", "delayed", "waiting-children"):
            assert (record["s"] == "waiting-children") == waits, f"{job_id} is {record['s']} with {kinds}"


async def _check_counts(queue: Queue, found: Dump, due: set[str]) -> None:
    counts = await queue.get_counts()
    for state, key in SETS.items():
        live = [member for member, _ in found.get(key, []) if member not in due]
        assert counts[state] == len(live), (state, counts)


async def _now_ms(queue: Queue) -> int:
    seconds, micros = await queue.client.time()
    return int(seconds) * 1000 + int(micros) // 1000
