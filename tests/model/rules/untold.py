"""A family that is too large for one call is canceled, and told in steps: by who canceled it, or by the duty."""

import msgspec
from hypothesis import strategies as st

from orchestrator.job import JobOptions
from orchestrator.parent import Parent
from orchestrator.scripts import FlowEntry
from tests.model.rules.weighted import INTERVAL_MS, RuledMachine, picks, rule
from tests.model.untold import TOLD_AT_ONCE

ROOT = "large"
BRANCH, *LEAVES = [f"l{number}" for number in range(TOLD_AT_ONCE + 4)]
TWIGS = LEAVES[-3:]
"""Children of the branch; it and the other leaves are children of the root."""


def is_large_family(machine: RuledMachine) -> bool:
    """There is no second one: of two that are told the duty would choose one."""
    return any(job_id in machine.model.jobs for job_id in (ROOT, BRANCH, *LEAVES)) or bool(machine.model.untold)


class UntoldRules(RuledMachine):
    """What is done with a large family."""

    @rule(1, when=lambda self: not is_large_family(self), kept=st.booleans(), starts=st.integers(0, 2), pick=picks)
    def a_large_family_is_canceled(self, kept: bool, starts: int, pick: int) -> None:
        """One that was just added; some may run by then."""
        self.call("set_limits", self.token(), max_waiting=0)
        self.call("add_flow", self.token(), self._large_family(kept))
        if starts:
            self.call("move_to_active", *self.lane(0), 20_000, INTERVAL_MS, starts)
        if pick % 4 == 0:
            self.call("get_children", 20, 10, [(self.rig.keys.queue, each) for each in (ROOT, BRANCH, "nobody")])
        self._cancel()

    @rule(
        6,
        when=lambda self: self.model.untold,
        limit=st.sampled_from([1, 2, TOLD_AT_ONCE]),
        by=st.sampled_from(["the canceler", "the duty", "the duty", "another canceler", "one who retries"]),
    )
    def tell_the_untold(self, limit: int, by: str) -> None:
        if by == "the canceler":
            self.call("cancel_descendants", next(iter(self.model.untold)), limit)
        elif by == "the duty":
            self.call("move_due_jobs", limit)
        elif by == "another canceler":
            self._cancel()
        else:
            self.call("reprocess_job", self.token(), ROOT)

    def _cancel(self) -> None:
        self.call("cancel_job", self.token(), ROOT, b'{"by":"me","reason":"large"}')

    def _large_family(self, kept: bool) -> list[FlowEntry]:
        places = [(ROOT, 0), (BRANCH, 1), *((leaf, 2 if leaf in TWIGS else 1) for leaf in LEAVES)]
        numbers = [place for _, place in places]
        entries = []
        for number, (name, place) in enumerate(places, 1):
            options = JobOptions(remove_on_fail=not kept, telemetry=False)
            if place:
                above = Parent(self.rig.keys.queue, places[place - 1][0])
                options = msgspec.structs.replace(options, parent=above, on_failure="ignore")
            header = msgspec.structs.replace(options.header("paint"), children=numbers.count(number))
            entries.append(FlowEntry(self.rig.keys.queue, name, place, msgspec.json.encode(header), b"7"))
        return entries
