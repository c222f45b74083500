"""Duties look after the queue, the relay empties the outbox, time passes."""

from hypothesis import strategies as st

from tests.model.reference import Reference
from tests.model.rules.weighted import INTERVAL_MS, RuledMachine, is_any_running, leases_ms, picks, rule

BACK = (-60_000, -1000)
ON = (
    1,
    499,
    500,
    1000,
    1001,
    1500,
    1500,
    2000,
    2000,
    5000,
    15_000,
    30_001,
    60_000,
    60_001,
    120_001,
    3_600_000,
    86_400_000,
)


class UpkeepRules(RuledMachine):
    """What happens without a user."""

    @rule(2, lease_ms=leases_ms, limit=st.sampled_from([1, 10, 10]))
    def scan_stalled(self, lease_ms: int, limit: int) -> None:
        self.call("move_stalled_to_wait", lease_ms, INTERVAL_MS, limit)

    @rule(1, limit=st.sampled_from([1, 10]))
    def scan_due(self, limit: int) -> None:
        self.call("move_due_jobs", limit)

    @rule(1, limit=st.sampled_from([1, 10]))
    def scan_expired(self, limit: int) -> None:
        self.call("remove_expired", limit)

    @rule(12, when=lambda self: self.model.sweep)
    def sweep_files(self) -> None:
        paths = self.model.get_due_files(2)
        self.call("get_due_files", 2)
        self.call("forget_files", paths or [*self.model.sweep][:1])

    @rule(5, ms=st.sampled_from(ON))
    def advance_clock(self, ms: int) -> None:
        self.rig.move_clock(ms)

    @rule(5, pick=picks, off_ms=st.sampled_from([0, -1, 1]))
    def advance_clock_to_an_end(self, pick: int, off_ms: int) -> None:
        """The very millisecond at which something ends or begins, or the one before or after it."""
        ends = sorted({at for at in ends_in(self.model) if at > self.model.now + 1})
        if ends:
            self.rig.move_clock(ends[pick % len(ends)] + off_ms - self.model.now)

    @rule(5, when=lambda self: any(self.model.expires.values()), pick=picks, off_ms=st.sampled_from([0, -1, 1]))
    def scan_at_the_end_of_a_record(self, pick: int, off_ms: int) -> None:
        ends = sorted({at for scores in self.model.expires.values() for at in scores.values() if at > self.model.now})
        if ends:
            self.rig.move_clock(ends[pick % len(ends)] + off_ms - self.model.now)
        self.scan_expired(10)

    @rule(1, ms=st.sampled_from(BACK))
    def set_clock_back(self, ms: int) -> None:
        self.rig.move_clock(ms)

    @rule(3, when=is_any_running)
    def leases_end(self) -> None:
        """What a duty does in time: looks, waits, looks, until no lease of 2 s is left."""
        for _ in range(3):
            self.scan_stalled(2000, 10)
            self.rig.move_clock(1500)
        self.scan_stalled(2000, 10)

    @rule(2, when=lambda self: self.model.journal.outbox)
    def relay(self) -> None:
        self.call("create_group", "relay")
        self.call("acknowledge", "relay", self.model.journal.outbox[:6])

    @rule(1, kinds=st.sampled_from(["", "completed progress", "progress", "added failed"]))
    def subscribe(self, kinds: str) -> None:
        self.listen(kinds)


def ends_in(model: Reference) -> list[int]:
    """All instants that something waits for, but those of mere memory, which are many."""
    limits, memory = model.limits, model.memory
    ends = [job.lease_ends_at for job in model.of("active")] + [job.due_at or 0 for job in model.of("delayed")]
    for scores in (model.deadlines, *model.expires.values()):
        ends += scores.values()
    ends += [model.grace_until or 0, limits.limited_until or 0]
    ends += [window.ends_at for window in model.windows().values()]
    ends += [int(at) for at in model.places["held"].values() if at < 2**53 - 1]
    ends += [ends_at for _, ends_at in model.dedup.values()]
    return ends + [entry[1] for entry in [*memory.tombstones.entries.values(), *memory.lanes.entries.values()]]
