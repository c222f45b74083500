"""What holds after every call whatever the model says: I1 to I9 and I12 of the promises in lua/README.md.

They are read from the keys and events alone, so that a mistake in the model cannot hide one in the scripts.
"""

from typing import Any

import msgspec

from tests.invariants import NEXT, SETS, TOLD, WITH_MEMBERS, check_children, check_deduplication, check_groups
from tests.model.job import FINISHED
from tests.model.snapshot import Found

TERMINAL = FINISHED
WAITING = ("waiting", "delayed", "waiting-children")
STILL = (*TOLD, "canceling", "priority")
"""Events after which the job stays where it was."""


class Invariants:
    """Remembers what it needs to see that nothing goes back, and how many starts the limit allows."""

    def __init__(self) -> None:
        self._payloads: dict[str, tuple[str, Any]] = {}
        self._attempts: dict[str, tuple[int, ...]] = {}
        self._paths: dict[str, tuple[str | None, int, int]] = {}
        self._starts: list[int] = []
        self._rate: tuple[int, int] | None = None

    def check(self, found: Found, now: int, rate: tuple[int, int] | None) -> None:
        """Assert all of them."""
        keys = {name: value for name, (value, _) in found.keys.items()}
        records = {name[6:]: value for name, value in keys.items() if name.startswith("state:")}
        self._places(keys, records)
        self._payload(keys, records)
        self._counts(keys, records)
        self._order(keys, records)
        self._ends(found, records)
        self._history(found, records)
        self._window(found, rate)
        self._keys(keys)

    def forget_starts(self) -> None:
        """The clock was set back."""
        self._starts.clear()

    def _places(self, keys: dict[str, Any], records: dict[str, Any]) -> None:
        """I1, I3: every record is in exactly one set, the one it says; who runs has a lease, who has ended ran out."""
        places: dict[str, list[str]] = {}
        for key, state in SETS.items():
            for member in keys.get(key, {}):
                places.setdefault(member[17:] if key in WITH_MEMBERS else member, []).append(state)
        for job_id, record in records.items():
            assert places.get(job_id) == [record["state"]], (
                f"{job_id} says {record['state']}, is in {places.get(job_id)}"
            )
            assert f"job:{job_id}" in keys, f"{job_id} has no definition"
            assert "lease" in record or record["state"] != "active"
        for job_id in places.keys() - records.keys():
            (state,) = places[job_id]
            assert job_id in keys.get(f"expires:{state}", {}), f"{job_id} is {state} without a record"

    def _payload(self, keys: dict[str, Any], records: dict[str, Any]) -> None:
        """I12: a definition is as it was at first, and no key outlives its record."""
        for name, value in keys.items():
            kind, _, job_id = name.partition(":")
            if kind in ("job", "state", "log", "lines", "children"):
                assert job_id in records, f"{name} belongs to no job"
            if kind == "job":
                life = records[job_id]["added"]
                before = self._payloads.get(job_id)
                assert before is None or before[0] != life or before[1] == value, f"{name} has changed"
                self._payloads[job_id] = life, value
        for job_id in keys.get("deadlines", {}):
            assert records[job_id]["state"] in WAITING, f"{job_id} must start, and has"
        for job_id in keys.get("dead", {}):
            assert job_id in keys.get("failed", {}), f"{job_id} is dead and has not failed"
        for state in FINISHED:
            assert keys.get(f"expires:{state}", {}).keys() <= keys.get(state, {}).keys()

    def _counts(self, keys: dict[str, Any], records: dict[str, Any]) -> None:
        """I5: attempts and stalls stay within their limits, and grow within a run."""
        for job_id, record in records.items():
            header = msgspec.json.decode(keys[f"job:{job_id}"].partition("\n")[0])
            counts = tuple(int(record.get(name, 0)) for name in ("run", "started", "made", "stalled", "seq"))
            run, started, made, stalled, _ = counts
            assert made <= header.get("a", 1), f"{job_id} made {made} attempts"
            assert stalled <= header.get("m", 1) + 1
            assert made <= started
            before = self._attempts.get(f"{job_id} {record['added']}")
            if before is not None and before[0] == run:
                assert all(new >= old for new, old in zip(counts, before, strict=True)), (
                    f"{job_id}: {before} → {counts}"
                )
            self._attempts[f"{job_id} {record['added']}"] = counts

    def _order(self, keys: dict[str, Any], records: dict[str, Any]) -> None:
        """I6, I8: a member says its job's sequence; its score is the priority, or when it is due."""
        for name, field in (("wait", "priority"), ("grouped", "priority"), ("delayed", "due_at")):
            for member, score in keys.get(name, {}).items():
                record = records[member[17:]]
                header = msgspec.json.decode(keys[f"job:{member[17:]}"].partition("\n")[0])
                assert int(member[:16], 16) == int(record["sequence"])
                assert score == int(record.get(field, header.get("p", 0)))

    def _keys(self, keys: dict[str, Any]) -> None:
        """I10 and what holds of groups: those of all tests, see tests/invariants.py."""
        dump = {name: [*value.items()] if _is_scored(value) else value for name, value in keys.items()}
        check_groups(dump)
        check_children(dump, set())
        if "closing_until" not in keys.get("meta", {}):
            check_deduplication(dump)

    def _ends(self, found: Found, records: dict[str, Any]) -> None:
        """I12: keys end exactly when their record does; what is only remembered always ends."""
        for name, (_, ends_at) in found.keys.items():
            kind, _, rest = name.partition(":")
            if kind in ("job", "state", "log", "lines", "children"):
                assert ends_at == int(records[rest].get("expires_at", -1)), f"{name} ends at {ends_at}"
            elif kind in ("answer", "gone", "result", "preview", "lingered", "rate", "grate", "worker", "metrics"):
                assert ends_at > 0, f"{name} never ends"
            elif kind != "dedup":
                assert ends_at == -1, f"{name} ends at {ends_at}"

    def _history(self, found: Found, records: dict[str, Any]) -> None:
        """I7: a job's events are numbered 1, 2, 3 …, on a legal path, with one end for each run."""
        for _, text in found.events:
            event = msgspec.json.decode(text)
            if "seq" not in event:
                continue
            job_id, kind = event["job"], event["type"]
            state, run, seq = (None, 1, 0) if kind == "added" else self._paths[job_id]
            assert kind in NEXT[state], f"{job_id}: {kind} after {state}"
            run += kind == "retried"
            assert (event["run"], event["seq"]) == (run, seq + 1), event
            if kind not in STILL:
                state = event["state"] if kind in ("added", "retried") else kind
            self._paths[job_id] = state, run, seq + 1
        for job_id, record in records.items():
            state, run, seq = self._paths[job_id]
            assert (record["state"], int(record["run"]), int(record["seq"])) == (state, run, seq)

    def _window(self, found: Found, rate: tuple[int, int] | None) -> None:
        """I9: no window has more starts than the limit allows."""
        if rate != self._rate:
            self._rate = rate
            self.forget_starts()
        starts = [event for _, text in found.events if (event := msgspec.json.decode(text))["type"] == "active"]
        self._starts += [event["at"] for event in starts]
        if rate is not None:
            most, window_ms = rate
            for first, last in zip(self._starts, self._starts[most:], strict=False):
                assert last - first >= window_ms, f"more than {most} starts in {window_ms} ms: {self._starts}"


def _is_scored(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(score, float) for score in value.values())
