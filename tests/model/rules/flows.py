"""Flows are added, grow while they run, end in all ways, are read and taken apart."""

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from orchestrator.job import JobOptions, KeepJobs
from orchestrator.parent import ON_FAILURE, Parent
from orchestrator.scripts import Finish, FlowEntry
from tests.model.job import FINISHED, ModelJob
from tests.model.rules.weighted import INTERVAL_MS, RuledMachine, is_any_running, picks, rule
from tests.model.rules.working import ERROR, LARGE

HUGE = b'"%s"' % (b"x" * 66_000)
"""So long that a parent does not get a copy of it while the child has it."""
NAMES = [f"k{number}" for number in range(8)]
shapes = st.sampled_from(
    [(0, 1), (0, 1), (0, 1, 1), (0, 1, 2), (0, 1, 2), (0, 1, 1, 2), (0, 1, 1, 2, 3), (0, 1, 1, 1, 1, 1), (0, 1, 0, 3)]
)
"""For each job its parent's place, from 1; 0: a root."""
keeps = st.sampled_from([False, False, False, True, 1, KeepJobs(age_s=1), KeepJobs(age_s=90)])
options = {
    "priority": st.sampled_from([0, 0, 1]),
    "delay_ms": st.sampled_from([0, 0, 0, 1000]),
    "lifo": st.booleans(),
    "attempts": st.sampled_from([1, 1, 2]),
    "expires_ms": st.sampled_from([0, 0, 0, 0, 1500]),
    "max_stalled": st.integers(0, 1),
    "remove_on_complete": keeps,
    "remove_on_fail": keeps,
    "group": st.sampled_from([None, None, None, "g"]),
    "notify": st.sampled_from([(), (), ("added", "waiting-children"), ("failed", "canceled", "waiting")]),
    "telemetry": st.just(False),
}
policies = st.sampled_from(["fail_parent", *ON_FAILURE])
of_jobs = st.lists(st.tuples(st.builds(JobOptions, **options), policies), min_size=6, max_size=6)
ends = st.sampled_from(["completed", "completed", "failed", "failed", "canceled", "waiting-children"])
Jobs = Sequence[tuple[JobOptions, str]]


def is_any_parent(machine: RuledMachine) -> bool:
    """For rules that concern families."""
    return any(job.family for job in machine.model.jobs.values())


def is_any_child(machine: RuledMachine) -> bool:
    """For rules that concern children."""
    return any(job.header.parent for job in machine.model.jobs.values())


class FlowRules(RuledMachine):
    """What is done with families."""

    @rule(4, shape=shapes, jobs=of_jobs, first=st.integers(0, 7), pick=picks)
    def add_flow(self, shape: tuple[int, ...], jobs: Jobs, first: int, pick: int) -> None:
        above = self.any_id(pick) if pick % 4 == 0 else ""
        names = [NAMES[(first + place) % len(NAMES)] for place in range(len(shape))]
        entries = []
        for place, (name, number) in enumerate(zip(names, shape, strict=True)):
            parent = names[number - 1] if number else above
            header = self._header(jobs[place], parent, shape.count(place + 1))
            entries.append(FlowEntry(self.rig.keys.queue, name, number, header, b'{"x":1}'))
        self.call("add_flow", self.token(), entries)

    @rule(3, name=st.sampled_from(NAMES), jobs=of_jobs, pick=picks)
    def add_child(self, name: str, jobs: Jobs, pick: int) -> None:
        """Of one that waits, runs, has ended, or is not there."""
        self.call("add_jobs", self.token(), [(name, self._header(jobs[0], self.any_id(pick)), b"1")])

    @rule(4, when=is_any_running, jobs=of_jobs, pick=picks, count=st.integers(1, 3))
    def add_children_of_a_running_job(self, jobs: Jobs, pick: int, count: int) -> None:
        parent = self._one_of(self.model.of("active"), pick)
        names = [NAMES[(pick + place) % len(NAMES)] for place in range(count)]
        added = [(name, self._header(jobs[place], parent), b"2") for place, name in enumerate(names)]
        self.call("add_bulk", self.token(), added)

    @rule(
        6,
        when=is_any_parent,
        lane=st.integers(0, 1),
        outcome=ends,
        pick=picks,
        pause_ms=st.sampled_from([-1, 0, 0, 2000]),
    )
    def a_family_works(self, lane: int, outcome: str, pick: int, pause_ms: int) -> None:
        """All that may start do; then one that has a parent or children ends its attempt, or all of them do."""
        self.call("move_to_active", *self.lane(lane), 20_000, INTERVAL_MS, 5)
        related = [job for job in self.model.of("active") if job.family or job.header.parent]
        ending = related if pick % 3 == 0 else related[pick % len(related) :][:1] if related else []
        if finishes := [self._end(job, outcome, pick, pause_ms) for job in ending]:
            self.call("move_to_finished", *self.lane(lane), 20_000, INTERVAL_MS, 0, finishes)

    @rule(9, when=lambda self: any(job.family for job in self.model.of("active")), pick=picks, outcome=ends)
    def a_parent_ends_its_attempt(self, pick: int, outcome: str) -> None:
        parents = [job for job in self.model.of("active") if job.family]
        finish = self._end(parents[pick % len(parents)], outcome, pick, pick % 3 * 1000 - 1000)
        self.call("move_to_finished", *self.lane(0), 20_000, INTERVAL_MS, pick % 2, [finish])

    @rule(2, when=is_any_child, pick=picks)
    def remove_child_dependency(self, pick: int) -> None:
        self.call("remove_child_dependency", self.token(), self._some_child(pick) if pick % 7 else self.any_id(pick))

    @rule(2, when=is_any_parent, pick=picks)
    def remove_unprocessed_children(self, pick: int) -> None:
        parent = self._some_parent(pick) if pick % 7 else self.any_id(pick)
        self.call("remove_unprocessed_children", self.token(), parent)

    @rule(2, when=is_any_parent, pick=picks, whole=st.sampled_from([True, True, False]))
    def cancel_a_family(self, pick: int, whole: bool) -> None:
        self.call("cancel_job", self.token(), self._some_parent(pick), b'{"by":"me","reason":"all"}', whole=whole)

    @rule(1, when=is_any_parent, pick=picks, whole=st.booleans())
    def remove_a_family(self, pick: int, whole: bool) -> None:
        self.call("remove_job", self.token(), self._some_parent(pick), whole=whole)

    @rule(3, when=is_any_child, pick=picks)
    def retry_one_of_a_family(self, pick: int) -> None:
        ended = [job for job in self.model.of(*FINISHED) if job.family or job.header.parent]
        if ended:
            self.call("reprocess_job", self.token(), self._one_of(ended, pick))

    @rule(2, when=is_any_parent, pick=picks, kinds=st.sampled_from(["pcfi", "p", "c", "fi"]))
    def read_a_family(self, pick: int, kinds: str) -> None:
        parent = self._some_parent(pick) if pick % 7 else self.any_id(pick)
        self.call("get_dependencies", parent, "0", 10, kinds)
        self.call("get_dependencies_count", parent)
        self.call("get_children", pick % 3, 1 + pick % 4, [(self.rig.keys.queue, each) for each in (parent, "k0")])

    def _header(self, job: tuple[JobOptions, str], parent: str, children: int = 0) -> bytes:
        options, policy = job
        if parent:
            options = msgspec.structs.replace(options, parent=Parent(self.rig.keys.queue, parent), on_failure=policy)
        return msgspec.json.encode(msgspec.structs.replace(options.header("paint"), children=children))

    def _end(self, job: ModelJob, outcome: str, pick: int, pause_ms: int) -> Finish:
        content = {"completed": [b"1", b'{"ok":[]}', LARGE, HUGE][pick % 4], "failed": ERROR}.get(outcome, b"{}")
        return Finish(job.id, job.lease or "", outcome, content, pause_ms)

    def _some_parent(self, pick: int) -> str:
        return self._one_of([job for job in self.model.jobs.values() if job.family], pick)

    def _some_child(self, pick: int) -> str:
        return self._one_of([job for job in self.model.jobs.values() if job.header.parent], pick)

    def _one_of(self, jobs: Sequence[ModelJob], pick: int) -> str:
        return jobs[pick % len(jobs)].id
