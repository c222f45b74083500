"""What holds of every queue at every instant (I1, I2, I4, I6, I7, I11, I12 of shared/reliability.md)."""

from typing import Any

import msgspec

from orchestrator.events import TERMINAL, Event, id_key
from orchestrator.queue import Queue
from tests.dump import Dump, dump

SETS = {
    "wait": "waiting",
    "grouped": "waiting",
    "delayed": "delayed",
    "active": "active",
    "waiting_children": "waiting-children",
    "completed": "completed",
    "failed": "failed",
    "canceled": "canceled",
}
"""Where jobs stand, and the state they have there."""
WITH_MEMBERS = ("wait", "grouped", "delayed")
GROUP_PLACES = {"ring": "groups", "held": "groups:held", "idle": "groups:idle"}
FINISHED = ("completed", "failed", "canceled")
TOLD = ("progress", "milestone", "checkpoint")
NEXT = {
    None: {"added"},
    "waiting": {"active", "waiting-children", "canceled", "failed", "priority"},
    "delayed": {"waiting", "delayed", "waiting-children", "canceled", "failed", "priority"},
    "waiting-children": {"waiting", "delayed", "canceled", "failed", "priority"},
    "active": {
        *(
            "progress",
            "milestone",
            "checkpoint",
            "delayed",
            "waiting",
            "waiting-children",
            "stalled",
            "canceling",
            "priority",
        ),
        *FINISHED,
    },
    "stalled": {"waiting", "waiting-children", "failed", "canceled"},
    "completed": {"retried"},
    "failed": {"retried"},
    "canceled": {"retried"},
}
MAX_EVENT_BYTES = 4096
NO_SLOT = 2**53 - 1
MAX_HISTORY = 4000


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
        assert record["state"] == states[0], f"{job_id} is in {states} and says {record['state']}"
        assert ("lease" in record) or states[0] != "active"
    for key in found:
        kind, _, job_id = key.partition(":")
        if kind in ("job", "state", "log", "lines", "children"):
            assert job_id in places, f"{key} belongs to no job"
    _check_order(found)
    check_children(found, due)
    check_groups(found)
    _check_schedules(found, now_ms)
    check_deduplication(found)
    await _check_counts(queue, found, due)
    for job_id in places:
        if job_id not in due:
            check_history(await queue.get_history(job_id))
    return found


def check_history(history: list[Event]) -> None:
    """Assert that events are numbered without a gap, in order, on a legal path, with one end for each run.

    Of a very long one, the events after the first may be gone: then only what is left is looked at.
    """
    if len(history) >= MAX_HISTORY:
        first, *history = history
        assert (first.type, first.seq) == ("added", 1)
        history = _from_a_claim(history)
    first_seq = history[0].seq
    assert [event.seq for event in history] == list(range(first_seq, first_seq + len(history))), history
    keys = [id_key(event.id) for event in history]
    assert keys == sorted(set(keys))
    state = None if first_seq == 1 else "waiting"
    run = first_run = history[0].run
    for event in history:
        assert event.type in NEXT[state], f"{event.type} after {state}: {[each.type for each in history]}"
        assert event.run == (run + 1 if event.type == "retried" else run)
        run = event.run
        if event.type in ("added", "retried"):
            state = event.fields["state"]
        elif event.type not in (*TOLD, "canceling", "priority"):
            state = event.type
        assert len(event.encode()) <= MAX_EVENT_BYTES
    for number in range(first_run, run):
        assert sum(event.type in TERMINAL for event in history if event.run == number) == 1
    assert sum(event.type in TERMINAL for event in history if event.run == run) <= 1


def _from_a_claim(history: list[Event]) -> list[Event]:
    return history[next(place for place, event in enumerate(history) if event.type == "active") :]


def _places(found: Dump) -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for key, state in SETS.items():
        for member, _ in found.get(key, []):
            job_id = member[17:] if key in WITH_MEMBERS else member
            places.setdefault(job_id, []).append(state)
    return places


def _check_order(found: Dump) -> None:
    """The member of a waiting job is its place, and its score its priority."""
    for key in WITH_MEMBERS:
        for member, score in found.get(key, []):
            record: dict[str, Any] = found[f"state:{member[17:]}"]
            assert int(member[:16], 16) == int(record["sequence"])
            if key == "delayed":
                assert "due_at" in record
            else:
                assert score == int(record.get("priority", _header(found, member[17:]).get("p", 0)))
    for job_id, _ in found.get("deadlines", []):
        assert found[f"state:{job_id}"]["state"] in ("waiting", "delayed", "waiting-children")


def check_children(found: Dump, due: set[str]) -> None:
    """A parent's record counts its children; one that does not run waits for them exactly while some are pending."""
    for key, record in found.items():
        kind, _, job_id = key.partition(":")
        if kind != "state" or job_id in due:
            continue
        kinds = [known[0] for known in found.get(f"children:{job_id}", {}).values()]
        assert [int(record.get(name, 0)) for name in ("children", "completed_children", "ignored_children")] == [
            kinds.count(each) for each in "pci"
        ], job_id
        waits = kinds.count("p") > 0 and "continued" not in record
        if record["state"] in ("waiting", "delayed", "waiting-children"):
            assert (record["state"] == "waiting-children") == waits, f"{job_id} is {record['state']} with {kinds}"


def check_groups(found: Dump) -> None:
    """Every group stands in one place, the right one, and counts its running jobs."""
    grouped = {member for member, _ in found.get("grouped", [])}
    waiting = {key[6:]: [member for member, _ in value] for key, value in found.items() if key.startswith("group:")}
    assert sorted(member for members in waiting.values() for member in members) == sorted(grouped)
    active: dict[str, int] = {}
    for job_id, _ in found.get("active", []):
        record = found[f"state:{job_id}"]
        group = "*" if "ungrouped" in record else _header(found, job_id).get("g")
        if group:
            active[group] = active.get(group, 0) + 1
    for group, members in waiting.items():
        for member in members:
            record = found[f"state:{member[17:]}"]
            assert group == ("*" if "ungrouped" in record else _header(found, member[17:]).get("g"))
    for group in set(waiting) | set(active):
        assert f"ginfo:{group}" in found
    for group, info in ((key[6:], value) for key, value in found.items() if key.startswith("ginfo:")):
        places = [place for place, key in GROUP_PLACES.items() if group in {gid for gid, _ in found.get(key, [])}]
        assert places == [info["place"]], (group, places, info)
        assert (info["place"] == "idle") == (group not in waiting), (group, info)
        assert int(info["active"]) == active.get(group, 0), (group, info)
    _check_batches(found)


def _check_batches(found: Dump) -> None:
    """The index of batches holds exactly the waiting jobs that have a key."""
    batches = {(key[6:], member) for key, value in found.items() if key.startswith("batch:") for member, _ in value}
    members = [member for key in ("wait", "grouped") for member, _ in found.get(key, [])]
    keyed = {(_header(found, member[17:]).get("bk"), member) for member in members}
    assert batches == {(key, member) for key, member in keyed if key is not None}


def _header(found: Dump, job_id: str) -> dict[str, Any]:
    header: dict[str, Any] = msgspec.json.decode(found[f"job:{job_id}"].partition("\n")[0])
    return header


def _check_schedules(found: Dump, now_ms: int) -> None:
    """Each schedule has its place by its next slot, asks for slots when it has few, and the queue knows the first."""
    places = dict(found.get("schedules", []))
    hungry = dict(found.get("schedules:hungry", []))
    assert {f"schedule:{each}" for each in places} == {key for key in found if key.startswith("schedule:")}
    assert hungry.keys() <= places.keys()
    for scheduler_id, score in places.items():
        record: dict[str, Any] = found[f"schedule:{scheduler_id}"]
        slots = record["slots"].split(",") if "slots" in record else []
        assert score == int(record.get("at", NO_SLOT))
        assert ("at" in record) != ("finished" in record) or scheduler_id in hungry
        assert int(record["made"]) <= int(record.get("limit", NO_SLOT))
        if "cron" in record:
            assert slots == sorted(set(slots))
            assert slots[:1] == ([record["at"]] if "at" in record else [])
            assert (scheduler_id in hungry) == (len(slots) < 8 and not record.keys() & {"finished", "dry"})
    first = min(places.values(), default=NO_SLOT)
    noted = int(found.get("meta", {}).get("schedule_at", NO_SLOT))
    assert noted == first or first < noted <= now_ms + 1000


def check_deduplication(found: Dump) -> None:
    """A key is held by a job that has not ended, or says how that ended; only behind a holder one is kept back."""
    for key, value in found.items():
        kind, _, name = key.partition(":")
        if kind == "dedup" and " " not in value:
            assert found[f"state:{value}"]["state"] not in FINISHED, f"{key} is held by {value}, which has ended"
            header = msgspec.json.decode(found[f"job:{value}"].partition("\n")[0])
            assert header["dd"]["i"] == name
        elif kind == "dedup_next":
            assert " " not in found[f"dedup:{name}"]


async def _check_counts(queue: Queue, found: Dump, due: set[str]) -> None:
    counts = await queue.get_counts()
    for state in set(SETS.values()):
        keys = [key for key, kept in SETS.items() if kept == state]
        live = [member for key in keys for member, _ in found.get(key, []) if member not in due]
        assert counts[state] == len(live), (state, counts)


async def _now_ms(queue: Queue) -> int:
    seconds, micros = await queue.client.time()
    return int(seconds) * 1000 + int(micros) // 1000
