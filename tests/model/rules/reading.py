"""Somebody reads."""

from hypothesis import strategies as st

from tests.model.job import FINISHED
from tests.model.rules.weighted import RuledMachine, picks, rule


class ReadingRules(RuledMachine):
    """What watchers do."""

    @rule(4, pick=picks, what=st.integers(0, 4), start=st.integers(0, 4), count=st.integers(1, 5))
    def read(self, pick: int, what: int, start: int, count: int) -> None:
        events = self.model.journal.events
        if what == 0:
            self.call("get_counts")
        elif what == 1:
            self.call("get_recent", start, count)
        elif what == 2:
            states = ["waiting", "delayed", "active", *FINISHED]
            self.call("get_jobs", states[pick % 6 :], start, count)
        elif what == 3:
            self.call("get_job", self.any_id(pick), history=bool(start))
        elif events:
            known = events[pick % len(events)].id
            unknown = f"{self.model.now + 1}-{pick}"
            self.call("get_events", [known, known, self.model._id_before_all(), unknown][start % 4], count)
