"""Random histories of calls: to the scripts on a server, and to the model."""

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from orchestrator.job import JobOptions, KeepJobs
from orchestrator.scripts import Finish, Report
from tests.model.job import FINISHED, ModelJob
from tests.model.rules import RuledMachine, rule

INTERVAL_MS = 1000
ERROR = b'{"kind":"transient","message":"oh","details":{}}'
TIMEOUT = b'{"kind":"timeout","message":"slow","details":{"s":1}}'
LARGE = b'"%s"' % (b"x" * 3000)
DUTIES = ("promote_jobs", "move_stalled_to_wait", "remove_expired")
"""What they do is bounded: called again, they go on where they stopped."""
BACK = (-60_000, -1000)
ON = (1, 499, 500, 1000, 1001, 1500, 1500, 2000, 2000, 5000, 15_000, 30_001, 60_000, 60_001, 120_001, 86_400_000)

picks = st.integers(0, 999)
ids = st.sampled_from([f"j{number}" for number in range(9)])
leases_ms = st.sampled_from([2000, 2000, 20_000])
keeps = st.sampled_from(
    [False, False, True, 1, 2, KeepJobs(age_s=0), KeepJobs(age_s=1), KeepJobs(age_s=1, count=1), KeepJobs(age_s=90),
     KeepJobs(age_s=3600, count=2)]  # fmt: skip
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
    notify=st.sampled_from([(), (), ("added", "completed"), ("progress",), ("failed", "canceled", "waiting", "delayed")]),
    has_files=st.sampled_from([True, True, False]),
)
outcomes = st.sampled_from(["completed", "completed", "failed", "failed", "failed", "canceled", "returned"])
pauses_ms = st.sampled_from([-1, 0, 0, 2000, 2000, 60_000])


class Machine(RuledMachine):
    """Rules are calls; after each, answers, all keys, all new events and the invariants are compared."""

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

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

    # ── working ──────────────────────────────────────────────────────────────────────────────────────

    @rule(6, lane=st.integers(0, 1), slots=st.integers(0, 3), lease_ms=leases_ms)
    def claim(self, lane: int, slots: int, lease_ms: int) -> None:
        self.call("move_to_active", *self._lane(lane), lease_ms, INTERVAL_MS, slots)
        self._look_for_sleepers()

    @rule(4, lane=st.integers(0, 1))
    def claim_one(self, lane: int) -> None:
        self.claim(lane, 1, 2000)

    @rule(12, when=lambda self: self.model.of("active"), lane=st.integers(0, 1), slots=st.integers(0, 2), lease_ms=leases_ms, pick=picks, outcome=outcomes,
          pause_ms=pauses_ms, both=st.booleans())  # fmt: skip
    def finish(
        self, lane: int, slots: int, lease_ms: int, pick: int, outcome: str, pause_ms: int, both: bool
    ) -> None:
        jobs = self.model.of("active")
        jobs = jobs if both else jobs[pick % len(jobs) :][:1] if jobs else []
        finishes = [self._ending(job, outcome, pick + place, pause_ms) for place, job in enumerate(jobs)]
        if finishes:
            self.call("move_to_finished", *self._lane(lane), lease_ms, INTERVAL_MS, slots, finishes)
            self._look_for_sleepers()

    @rule(2, pick=picks, lease_ms=leases_ms, cancel_ms=st.sampled_from([0, 1000, 5000]))
    def renew(self, pick: int, lease_ms: int, cancel_ms: int) -> None:
        held = [(job.id, job.lease or "") for job in self.model.of("active")]
        self.call("extend_locks", lease_ms, cancel_ms, held[pick % 3 :] or [("nobody", "x")])

    @rule(3, when=lambda self: self.model.of("active"), pick=picks, step=st.sampled_from([0, 1, 1, 1, 2, 2000]), name=st.sampled_from(["", "", "denoised"]),
          preview=st.sampled_from([b"", b"", b"RIFF"]))  # fmt: skip
    def report(self, pick: int, step: int, name: str, preview: bytes) -> None:
        if job := self.some(pick, "active"):
            number = (job.reported or 0) + step
            content = b'{"step":%d}' % number
            self.call("update_progress", job.id, job.lease or "", Report(number, name, content, preview))

    @rule(2, when=lambda self: self.model.of("active"), pick=picks, step=st.integers(0, 1))
    def log(self, pick: int, step: int) -> None:
        if job := self.some(pick, "active"):
            number = (job.reported or 0) + step
            self.call("add_log", job.id, job.lease or "", number, f"line {number}")

    @rule(3, pick=picks, act=st.integers(0, 3))
    def act_with_an_old_token(self, pick: int, act: int) -> None:
        """Whoever lost the lease, or never had it, changes nothing."""
        job_id = self.any_id(pick)
        leases = {f"{sent.args[0]}.1" for sent in self.rig.sent if sent.name.startswith("move_to")}
        job = self.model.jobs.get(job_id)
        old = next((lease for lease in sorted(leases) if job is None or lease != job.lease), "0-x.1")
        if job is not None and job.state != "active" and job.lease is not None:
            old = job.lease
        before = self.rig.picture()
        if act == 0:
            self.call("update_progress", job_id, old, Report(9999, "", b"9", b"zombie"))
        elif act == 1:
            self.call("add_log", job_id, old, 9999, "of a zombie")
        elif act == 2:
            self.call("extend_locks", 2000, 1000, [(job_id, old)])
        else:
            ending = Finish(job_id, old, "completed", b"9")
            self.call("move_to_finished", *self._lane(0), 2000, INTERVAL_MS, 0, [ending])
            return  # the call itself looks after the queue
        assert self.rig.picture() == before

    # ── steering ─────────────────────────────────────────────────────────────────────────────────────

    @rule(1, pick=picks, reason=st.sampled_from(["", "why"]))
    def cancel(self, pick: int, reason: str) -> None:
        cancel = msgspec.json.encode({"by": "me", "reason": reason})
        self.call("cancel_job", self.token(), self.any_id(pick), cancel)

    @rule(1, when=lambda self: self.model.of("active"), pick=picks)
    def cancel_running(self, pick: int) -> None:
        if job := self.some(pick, "active"):
            self.call("cancel_job", self.token(), job.id, b'{"by":"me","reason":""}')

    @rule(2, pick=picks)
    def retry(self, pick: int) -> None:
        job = self.some(pick, *FINISHED)
        self.call("reprocess_job", self.token(), job.id if job else self.any_id(pick))

    @rule(2, pick=picks)
    def remove(self, pick: int) -> None:
        self.call("remove_job", self.token(), self.any_id(pick))

    @rule(1, pick=picks)
    def promote(self, pick: int) -> None:
        job = self.some(pick, "delayed")
        self.call("promote", self.token(), job.id if job else self.any_id(pick))

    @rule(2, pick=picks, priority=st.integers(0, 3))
    def change_priority(self, pick: int, priority: int) -> None:
        self.call("change_priority", self.token(), self.any_id(pick), priority)

    @rule(1, paused=st.sampled_from([True, False, False, False]))
    def pause_or_resume(self, paused: bool) -> None:
        self.call("pause", self.token(), paused=paused)

    @rule(1, limits=st.sampled_from([
        {"concurrency": 1}, {"concurrency": 2}, {"concurrency": 0}, {"concurrency": 0, "rate": (0, 0)},
        {"rate": (1, 1000)}, {"rate": (2, 1500)}, {"rate": (3, 5000)}, {"rate": (0, 0)}, {"limited_ms": 2000},
        {"limited_ms": 0}, {"concurrency": 0, "rate": (0, 0), "limited_ms": 0},
    ]))  # fmt: skip
    def set_limits(self, limits: dict[str, Any]) -> None:
        self.call("set_limits", self.token(), **limits)

    # ── upkeep and time ──────────────────────────────────────────────────────────────────────────────

    @rule(2, lease_ms=leases_ms, limit=st.sampled_from([1, 10, 10]))
    def scan_stalled(self, lease_ms: int, limit: int) -> None:
        self.call("move_stalled_to_wait", lease_ms, INTERVAL_MS, limit)

    @rule(1, limit=st.sampled_from([1, 10]))
    def scan_due(self, limit: int) -> None:
        self.call("promote_jobs", limit)

    @rule(1, limit=st.sampled_from([1, 10]))
    def scan_expired(self, limit: int) -> None:
        self.call("remove_expired", limit)

    @rule(4, when=lambda self: self.model.sweep)
    def sweep_files(self) -> None:
        paths = self.model.get_due_files(2)
        self.call("get_due_files", 2)
        if paths:
            self.call("forget_files", paths)

    @rule(5, ms=st.sampled_from(ON))
    def advance_clock(self, ms: int) -> None:
        self.rig.move_clock(ms)

    @rule(1, ms=st.sampled_from(BACK))
    def set_clock_back(self, ms: int) -> None:
        self.rig.move_clock(ms)

    @rule(1, when=lambda self: self.model.of("active"))
    def leases_end(self) -> None:
        """What a duty does in time: looks, waits, looks, until no lease of 2 s is left."""
        for _ in range(3):
            self.scan_stalled(2000, 10)
            self.rig.move_clock(1500)
        self.scan_stalled(2000, 10)

    # ── sent again ───────────────────────────────────────────────────────────────────────────────────

    @rule(5, when=lambda self: self.rig.sent_at == self.model.now)
    def repeat_the_last_call(self) -> None:
        """A reply was lost: the same call once more has no effect and the same answer."""
        sent = self.rig.sent[-1]
        before = self.rig.picture()
        self.rig.again(sent)
        assert sent.name in DUTIES or self.rig.picture() == before, f"{sent.name} had an effect twice"

    @rule(3, when=lambda self: self.rig.sent, pick=picks)
    def a_copy_comes_late(self, pick: int) -> None:
        sent = self.rig.sent[pick % len(self.rig.sent)]
        self.rig.again(sent)
    
    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

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

    # ── wake-ups ─────────────────────────────────────────────────────────────────────────────────────

    @rule(2, when=lambda self: self.model.marker, lane=st.integers(0, 1))
    def wake_and_claim(self, lane: int) -> None:
        """What an idle worker does: it takes the marker, and claims."""
        assert self.rig.client.zpopmin(self.rig.keys.marker)
        self.model.marker = False
        self.claim(lane, 1, 2000)

    def _look_for_sleepers(self) -> None:
        """I8: after a claim, work that could start leaves the marker for the next worker."""
        limits = self.model.limits
        limited = limits.paused or limits.rate is not None or limits.limited_until is not None
        room = limits.concurrency is None or len(self.model.of("active")) < limits.concurrency
        if self.model.of("waiting") and not limited and room:
            assert self.rig.client.exists(self.rig.keys.marker), "work waits, and nobody is woken"

    def _lane(self, lane: int) -> tuple[str, str, str]:
        self.lane_calls[lane] += 1
        return f"{self.lane_calls[lane]}-{lane}x", f"w:{lane}", "worker"

    def _ending(self, job: ModelJob, outcome: str, pick: int, pause_ms: int) -> Finish:
        content = {
            "completed": [b'{"ok":[]}', b"1", LARGE][pick % 3],
            "failed": [ERROR, ERROR, TIMEOUT][pick % 3],
        }.get(outcome, b'{"step":3}')
        lease = job.lease or ""
        return Finish(job.id, "0-old.1" if pick % 17 == 16 else lease, outcome, content, pause_ms)
