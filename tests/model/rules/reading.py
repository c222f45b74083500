"""Somebody reads."""

from hypothesis import strategies as st

from tests.model.job import FINISHED
from tests.model.rules.weighted import RuledMachine, picks, rule


class ReadingRules(RuledMachine):
    """What watchers do."""

    @rule(4, pick=picks, what=st.integers(0, 6), start=st.integers(0, 4), count=st.integers(1, 5))
    def read(self, pick: int, what: int, start: int, count: int) -> None:
        events = self.model.journal.events
        if what == 0:
            self.call("get_counts")
        elif what == 1:
            self.call("get_recent", start, count)
        elif what == 2:
            states = ["waiting", "delayed", "active", "waiting-children", *FINISHED]
            self.call("get_jobs", states[pick % 7 :], start, count)
        elif what == 3:
            self.call("get_job", self.any_id(pick), history=bool(start))
        elif what == 4:
            self.call("get_counts_per_priority", [0, 1, pick])
        elif what == 5:
            self.call("get_limits")
            self.call("get_meta", "epoch", "paused", "concurrency", "limited_until", "metrics")
        elif events:
            known = events[pick % len(events)].id
            unknown = f"{self.model.now + 1}-{pick}"
            self.call("get_events", [known, known, self.model._id_before_all(), unknown, "0-0"][start % 5], count)

    @rule(2, pick=picks)
    def ask_why_one_waits(self, pick: int) -> None:
        grouped = self.model.in_groups()
        self.call("get_position", grouped[pick % len(grouped)].id if grouped and pick % 4 else self.any_id(pick))

    @rule(3, pick=picks, what=st.integers(0, 3), start=st.integers(0, 2), count=st.integers(0, 3))
    def observe(self, pick: int, what: int, start: int, count: int) -> None:
        minute = self.model.now // 60_000
        if what == 0:
            self.call("get_stats")
        elif what == 1:
            kind = [*self.model.counters.totals, "nothing"][pick % 5 % (len(self.model.counters.totals) + 1)]
            self.call("get_metrics", kind, [-2, minute - 1, 0][start], [0, minute][count % 2])
        elif what == 2:
            self.call("get_groups", start, count)
        else:
            self.call("get_group", "ghi*x"[pick % 5], start, count)

    @rule(1, worker=st.sampled_from("vw"), leaves=st.booleans(), count=st.integers(1, 2))
    def heartbeat(self, worker: str, leaves: bool, count: int) -> None:
        record = b'{"id":"%s","name":"n","state":"running"}' % worker.encode()
        self.call("heartbeat", worker, record)
        if leaves:
            self.call("heartbeat", worker, b"")
        self.call("get_workers", 0, count)

    @rule(1, enabled=st.sampled_from([True, True, False]))
    def set_metrics(self, enabled: bool) -> None:
        self.call("set_metrics", self.token(), enabled=enabled)
