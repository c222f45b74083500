"""Operators move and remove many jobs, and end queues."""

from hypothesis import strategies as st

from orchestrator.job import JobOptions
from orchestrator.scripts import Finish
from tests.model.job import FINISHED
from tests.model.rules.adding import encoded
from tests.model.rules.weighted import INTERVAL_MS, RuledMachine, picks, rule

MANY = 13


class CleaningRules(RuledMachine):
    """What operators do to many jobs."""

    @rule(2, when=lambda self: self.model.of("delayed"), limit=st.integers(1, 3))
    def promote_jobs(self, limit: int) -> None:
        self.call("promote_jobs", self.token(), limit)

    @rule(2, pick=picks, limit=st.integers(1, 3), off_ms=st.sampled_from([None, 0, -1]))
    def retry_jobs(self, pick: int, limit: int, off_ms: int | None) -> None:
        ended = [(state, at) for state in FINISHED for at in self.model.finished[state].values()]
        state, at = ended[pick % len(ended)] if ended else (FINISHED[pick % 3], self.model.now)
        until_at = "" if off_ms is None else str(at + off_ms)
        self.call("retry_jobs", self.token(), state, limit, until_at)

    @rule(1, state=st.sampled_from(["waiting", "delayed"]), limit=st.integers(1, 3))
    def drain(self, state: str, limit: int) -> None:
        self.call("drain", self.token(), state, limit)

    @rule(
        2,
        state=st.sampled_from(["waiting", "waiting", "delayed", *FINISHED]),
        start=st.integers(0, 1),
        limit=st.integers(1, 3),
        grace_ms=st.sampled_from([0, 1000]),
        is_next=st.booleans(),
    )
    def clean(self, state: str, start: int, limit: int, grace_ms: int, is_next: bool) -> None:
        until_at = str(self.model.now - grace_ms) if is_next else ""
        self.call("clean", self.token(), state, start, limit, grace_ms, until_at)

    @rule(1, count=st.sampled_from([0, 1, 5, 50]))
    def trim_events(self, count: int) -> None:
        self.call("trim_events", count)

    @rule(1, pick=picks, force=st.sampled_from([True, True, False]), limit=st.sampled_from([1, 3, 3, 100]))
    def obliterate(self, pick: int, force: bool, limit: int) -> None:
        epoch = str(self.model.epoch) if pick % 8 else "1"
        if pick % 3 == 1:
            self.call("move_to_active", *self.lane(0), 2000, INTERVAL_MS, 1)
        self.call("obliterate", epoch, force=force, limit=limit, closing_ms=60_000)

    @rule(1, when=lambda self: self.model.sequence > 5)
    def obliterate_to_the_end(self) -> None:
        """The next life of the queue begins with nothing but files to be deleted."""
        epoch = str(self.model.epoch)
        while self.call("obliterate", epoch, force=True, limit=10, closing_ms=60_000):
            pass
        self._forget_keys(epoch)

    @rule(1, when=lambda self: self.model.limits.closing_until is None or self.model.of("waiting"))
    def forget_keys_of_a_queue_that_lives(self) -> None:
        self.call("forget_keys", str(self.model.epoch), ["meta"])

    @rule(1, keep=st.sampled_from([0, 1, 12]))
    def many_end_and_few_are_kept(self, keep: int) -> None:
        """More than one finish may end: the rest is the duty's."""
        plain = encoded(JobOptions(remove_on_complete=False, telemetry=False))
        few = encoded(JobOptions(remove_on_complete=max(keep, 1), telemetry=False))
        jobs = [(f"m{number}", plain if number else few, b"4") for number in range(MANY)]
        self.call("add_bulk", self.token(), jobs[1:])
        self.call("move_to_active", *self.lane(0), 20_000, INTERVAL_MS, MANY)
        self._complete_all()
        self.call("add_bulk", self.token(), jobs[:1])
        self.call("move_to_active", *self.lane(0), 20_000, INTERVAL_MS, 1)
        self._complete_all()
        if keep:
            self.call("remove_expired", keep)

    def _complete_all(self) -> None:
        finishes = [Finish(job.id, job.lease or "", "completed", b"5") for job in self.model.of("active")]
        if finishes:
            self.call("move_to_finished", *self.lane(0), 20_000, INTERVAL_MS, 0, finishes)

    def _forget_keys(self, epoch: str) -> None:
        for _ in range(2):
            names = [name for name in self.rig.picture() if name != "meta"]
            names += [name for name in ("events", "outbox") if self._has_stream(name)]
            self.call("forget_keys", epoch, names)
            if self._has_stream("events"):  # the next one must not begin in the millisecond of its last event
                self.rig.move_clock(self.model.journal.newest_ms + 1 - self.model.now)
        self.call("forget_keys", epoch, ["meta"])

    def _has_stream(self, name: str) -> bool:
        return bool(self.rig.client.exists(f"{self.rig.keys.prefix}{name}"))
