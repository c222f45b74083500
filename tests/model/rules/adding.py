"""Jobs are added: new ones, again, in the place of old ones, by the relay."""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from orchestrator.deduplication import Deduplication
from orchestrator.job import JobOptions, KeepJobs
from orchestrator.scripts import Finish
from tests.model.rules.weighted import INTERVAL_MS, RuledMachine, picks, rule

ids = st.sampled_from([f"j{number}" for number in range(9)])
keeps = st.sampled_from(
    [
        None,
        False,
        False,
        True,
        1,
        2,
        KeepJobs(age_s=0),
        KeepJobs(age_s=1),
        KeepJobs(age_s=1, count=1),
        KeepJobs(age_s=90),
        KeepJobs(age_s=3600, count=2),
    ]
)
rules = st.sampled_from(
    [
        Deduplication("d"),
        Deduplication("d", keep_last_if_active=True),
        Deduplication("d", replace=True),
        Deduplication("d", replace=True, keep_last_if_active=True),
        Deduplication("d", 2000),
        Deduplication("d", 2000, extend=True),
        Deduplication("d", 2000, extend=True, replace=True),
        Deduplication("e", 60_000, replace=True),
        Deduplication("e", keep_last_if_active=True),
    ]
)
plain = {
    "priority": st.sampled_from([0, 0, 1, 2]),
    "delay_ms": st.sampled_from([0, 0, 0, 500, 2000, 2000, 60_000]),
    "lifo": st.booleans(),
    "attempts": st.integers(1, 3),
    "expires_ms": st.sampled_from([0, 0, 0, 1000, 5000]),
    "max_stalled": st.integers(0, 2),
    "remove_on_complete": keeps,
    "remove_on_fail": keeps,
    "keep_logs": st.sampled_from([0, 1, 1000]),
    "notify": st.sampled_from([(), (), ("added", "completed"), ("progress",), ("failed", "canceled", "waiting")]),
    "has_files": st.sampled_from([True, True, False]),
    "telemetry": st.just(False),
}
shared = {
    "group": st.sampled_from([None, "g", "g", "h", "h", "i"]),
    "cost": st.sampled_from([1, 1, 2, 0.3]),
    "batch_key": st.sampled_from([None, None, "b"]),
    "affinity_key": st.sampled_from([None, "m", "n"]),
    "priority": st.sampled_from([0, 0, 0, 1]),
    "delay_ms": st.sampled_from([0, 0, 0, 0, 1000]),
    "telemetry": st.just(False),
}
options = st.builds(JobOptions, **plain)
options_of_groups = st.builds(JobOptions, **shared)
options_with_a_key = st.builds(
    JobOptions,
    deduplication=rules,
    delay_ms=st.sampled_from([0, 0, 1000]),
    remove_on_complete=keeps,
    group=st.sampled_from([None, None, "g"]),
    telemetry=st.just(False),
)
any_options = st.one_of(options_of_groups, options_with_a_key, options)


class AddingRules(RuledMachine):
    """What producers do."""

    @initialize(options=options)
    def begin(self, options: JobOptions) -> None:
        self.add("j0", options, 1)

    @rule(4, job_id=ids, options=options, size=st.integers(0, 3))
    def add(self, job_id: str, options: JobOptions, size: int) -> None:
        data = b'{"x":[%s],"n":1e999}' % b",".join([b"0.1"] * size)
        self.call("add_jobs", self.token(), [(job_id, encoded(options), data)])

    @rule(3, job_id=ids)
    def add_plain(self, job_id: str) -> None:
        self.call("add_jobs", self.token(), [(job_id, b'{"n":"paint"}', b"null")])

    @rule(5, job_id=ids, options=options_of_groups)
    def add_to_a_group(self, job_id: str, options: JobOptions) -> None:
        self.call("add_jobs", self.token(), [(job_id, encoded(options), b"1")])

    @rule(3, job_id=ids, options=options_with_a_key)
    def add_with_a_key(self, job_id: str, options: JobOptions) -> None:
        self.call("add_jobs", self.token(), [(job_id, encoded(options), b"2")])

    @rule(3, jobs=st.lists(st.tuples(ids, any_options), min_size=2, max_size=4))
    def add_some_at_once(self, jobs: list[tuple[str, JobOptions]]) -> None:
        self.call("add_jobs", self.token(), [(job_id, encoded(options), b"4") for job_id, options in jobs])

    @rule(3, first=rules, second=rules, starts=st.booleans(), ends=st.booleans())
    def two_meet_under_a_key(self, first: Deduplication, second: Deduplication, starts: bool, ends: bool) -> None:
        """The first may run when the second comes, and end after that."""
        self._add_under(first, "x1")
        if starts:
            self.call("move_to_active", *self.lane(0), 20_000, INTERVAL_MS, 9)
        self._add_under(second, "x2")
        keyed = [job for job in self.model.of("active") if job.header.deduplication]
        if ends and keyed:
            finishes = [Finish(job.id, job.lease or "", "completed", b"9") for job in keyed]
            self.call("move_to_finished", *self.lane(0), 20_000, INTERVAL_MS, 0, finishes)

    @rule(3, jobs=st.lists(st.tuples(ids, any_options), min_size=1, max_size=4, unique_by=lambda job: job[0]))
    def add_bulk(self, jobs: list[tuple[str, JobOptions]]) -> None:
        self.call("add_bulk", self.token(), [(job_id, encoded(options), b"3") for job_id, options in jobs])

    @rule(1, job_id=ids)
    def fan_out(self, job_id: str) -> None:
        self.call("fan_out", self.token(), job_id, b'{"n":"delivery","a":3}', b"{}")

    @rule(1, when=lambda self: self.model.dedup, name=st.sampled_from("de"), owned=st.booleans(), pick=picks)
    def remove_deduplication_key(self, name: str, owned: bool, pick: int) -> None:
        owner = self.model.dedup.get(name, ("nobody", 0))[0].split(" ")[0] if pick % 3 else "j0"
        self.call("remove_deduplication_key", self.token(), name, owner if owned else "")

    def _add_under(self, key: Deduplication, job_id: str) -> None:
        options = JobOptions(deduplication=key, telemetry=False)
        self.call("add_jobs", self.token(), [(job_id, encoded(options), b"8")])


def encoded(options: JobOptions) -> bytes:
    """A header as the queue sends it."""
    return msgspec.json.encode(options.header("paint"))
