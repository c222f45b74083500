"""Jobs are added: new ones, again, in the place of old ones, by the relay."""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from orchestrator.job import JobOptions, KeepJobs
from tests.model.rules.weighted import RuledMachine, rule

ids = st.sampled_from([f"j{number}" for number in range(9)])
keeps = st.sampled_from(
    [
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
options = st.builds(
    JobOptions,
    priority=st.sampled_from([0, 0, 1, 2]),
    delay_ms=st.sampled_from([0, 0, 0, 500, 2000, 2000, 60_000]),
    lifo=st.booleans(),
    attempts=st.integers(1, 3),
    expires_ms=st.sampled_from([0, 0, 0, 1000, 5000]),
    max_stalled=st.integers(0, 2),
    remove_on_complete=keeps,
    remove_on_fail=keeps,
    keep_logs=st.sampled_from([0, 1, 1000]),
    notify=st.sampled_from(
        [(), (), ("added", "completed"), ("progress",), ("failed", "canceled", "waiting", "delayed")]
    ),
    has_files=st.sampled_from([True, True, False]),
)


class AddingRules(RuledMachine):
    """What producers do."""

    @initialize(options=options)
    def begin(self, options: JobOptions) -> None:
        self.add("j0", options, 1)

    @rule(5, job_id=ids, options=options, size=st.integers(0, 3))
    def add(self, job_id: str, options: JobOptions, size: int) -> None:
        header = msgspec.json.encode(options.header("paint"))
        data = b'{"x":[%s],"n":1e999}' % b",".join([b"0.1"] * size)
        self.call("add_job", self.token(), job_id, header, data)

    @rule(4, job_id=ids)
    def add_plain(self, job_id: str) -> None:
        self.call("add_job", self.token(), job_id, b'{"n":"paint"}', b"null")

    @rule(1, job_id=ids)
    def fan_out(self, job_id: str) -> None:
        self.call("fan_out", self.token(), job_id, b'{"n":"delivery","a":3}', b"{}")
