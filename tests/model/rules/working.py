"""Workers claim, report, finish, come too late, and sleep."""

from hypothesis import strategies as st

from orchestrator.scripts import Finish, Report
from tests.model.job import ModelJob
from tests.model.rules.weighted import INTERVAL_MS, RuledMachine, is_any_running, leases_ms, picks, rule

ERROR = b'{"kind":"transient","message":"oh","details":{}}'
TIMEOUT = b'{"kind":"timeout","message":"slow","details":{"s":1}}'
LARGE = b'"%s"' % (b"x" * 3000)

outcomes = st.sampled_from(
    [
        "completed",
        "completed",
        "failed",
        "failed",
        "failed",
        "canceled",
        "returned",
        "delayed",
        "waiting",
        "rate_limited",
        "waiting-children",
    ]
)
wishes = st.sampled_from(
    [
        b"",
        b"",
        b'{"limiter":[1,1000]}',
        b'{"limiter":[2,5000]}',
        b'{"warm":["m"],"patience_ms":1500}',
        b'{"warm":["n"],"patience_ms":0,"limiter":[2,1000]}',
        b'{"batch":{"min_size":1,"linger_ms":0}}',
        b'{"batch":{"min_size":2,"linger_ms":1500}}',
        b'{"batch":{"min_size":3,"linger_ms":5000},"warm":["m"],"patience_ms":1000}',
    ]
)
keeps = st.sampled_from([b"", b'{"cc":0,"fc":1}', b'{"ca":60,"fa":0}', b'{"cc":-1,"fc":-1}'])
pauses_ms = st.sampled_from([-1, 0, 0, 2000, 2000, 60_000])


class WorkingRules(RuledMachine):
    """What workers do."""

    @rule(3, lane=st.integers(0, 1), slots=st.integers(0, 3), lease_ms=leases_ms)
    def claim(self, lane: int, slots: int, lease_ms: int) -> None:
        self.call("move_to_active", *self.lane(lane), lease_ms, INTERVAL_MS, slots)
        self._look_for_sleepers()

    @rule(4, lane=st.integers(0, 1), slots=st.integers(1, 4), wishes=wishes)
    def claim_by_wish(self, lane: int, slots: int, wishes: bytes) -> None:
        self.call("move_to_active", *self.lane(lane), 2000, INTERVAL_MS, slots, wishes)
        self._look_for_sleepers()

    @rule(5, when=lambda self: self.model.of("waiting"), lane=st.integers(0, 1))
    def claim_one(self, lane: int) -> None:
        self.claim(lane, 1, 2000)

    @rule(
        12,
        when=is_any_running,
        lane=st.integers(0, 1),
        slots=st.integers(0, 2),
        lease_ms=leases_ms,
        pick=picks,
        outcome=outcomes,
        pause_ms=pauses_ms,
        both=st.booleans(),
        wishes=wishes,
        keep=keeps,
    )
    def finish(
        self,
        lane: int,
        slots: int,
        lease_ms: int,
        pick: int,
        outcome: str,
        pause_ms: int,
        both: bool,
        wishes: bytes,
        keep: bytes,
    ) -> None:
        jobs = self.model.of("active")
        jobs = jobs if both else jobs[pick % len(jobs) :][:1] if jobs else []
        finishes = [self._ending(job, outcome, pick + place, pause_ms) for place, job in enumerate(jobs)]
        if finishes:
            lane_call = (*self.lane(lane), lease_ms, INTERVAL_MS, slots)
            self.call("move_to_finished", *lane_call, finishes, wishes, keep)
            self._look_for_sleepers()

    @rule(
        4,
        when=lambda self: any(job.header.attempts > 1 for job in self.model.of("active")),
        pick=picks,
        outcome=st.sampled_from(["completed", "failed"]),
    )
    def an_attempt_fails_and_the_next_ends_the_job(self, pick: int, outcome: str) -> None:
        jobs = [job for job in self.model.of("active") if job.header.attempts > 1]
        job = jobs[pick % len(jobs)]
        for each in ("failed", outcome):
            if job.state == "active":
                lane_call = (*self.lane(0), 20_000, INTERVAL_MS, 9)
                self.call("move_to_finished", *lane_call, [self._ending(job, each, 1, 0)], b"", b"")

    @rule(2, pick=picks, lease_ms=leases_ms, cancel_ms=st.sampled_from([0, 1000, 5000]))
    def renew(self, pick: int, lease_ms: int, cancel_ms: int) -> None:
        held = [(job.id, job.lease or "") for job in self.model.of("active")]
        self.call("extend_locks", lease_ms, cancel_ms, held[pick % 3 :] or [("nobody", "x")])

    @rule(
        3,
        when=is_any_running,
        pick=picks,
        step=st.sampled_from([0, 1, 1, 1, 2, 2000]),
        name=st.sampled_from(["", "", "denoised"]),
        preview=st.sampled_from([b"", b"", b"RIFF"]),
    )
    def report(self, pick: int, step: int, name: str, preview: bytes) -> None:
        if job := self.some(pick, "active"):
            number = (job.reported or 0) + step
            content = b'{"step":%d}' % number
            self.call("update_progress", job.id, job.lease or "", Report(number, name, content, preview))

    @rule(2, when=is_any_running, pick=picks, gap_ms=st.sampled_from([250, 499, 500]))
    def report_often(self, pick: int, gap_ms: int) -> None:
        """So often that the relay need not hear each."""
        self.listen("progress")
        for _ in range(3):
            self.report(pick, 1, "", b"")
            self.rig.move_clock(gap_ms)

    @rule(2, when=is_any_running, pick=picks, step=st.integers(0, 1))
    def checkpoint(self, pick: int, step: int) -> None:
        if job := self.some(pick, "active"):
            number = (job.reported or 0) + step
            self.call("save_checkpoint", job.id, job.lease or "", number, b'{"at":%d}' % number)

    @rule(2, when=is_any_running, pick=picks, step=st.integers(0, 1))
    def log(self, pick: int, step: int) -> None:
        if job := self.some(pick, "active"):
            number = (job.reported or 0) + step
            self.call("add_log", job.id, job.lease or "", number, f"line {number}")

    @rule(3, pick=picks, act=st.integers(0, 4))
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
        elif act == 3:
            self.call("save_checkpoint", job_id, old, 9999, b"9")
        else:
            ending = Finish(job_id, old, "completed", b"9")
            self.call("move_to_finished", *self.lane(0), 2000, INTERVAL_MS, 0, [ending])
            return  # the call itself looks after the queue
        assert self.rig.picture() == before

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
        startable = self.model.in_wait() or self.model.places["ring"]
        if startable and not limited and room:
            assert self.rig.client.exists(self.rig.keys.marker), "work waits, and nobody is woken"

    def _ending(self, job: ModelJob, outcome: str, pick: int, pause_ms: int) -> Finish:
        content = {
            "completed": [b'{"ok":[]}', b"1", LARGE][pick % 3],
            "failed": [ERROR, ERROR + b"\nwork.py:3 paint\nwork.py:9 mix", TIMEOUT][pick % 3],
        }.get(outcome, b'{"step":3}')
        if outcome in ("delayed", "rate_limited"):
            pause_ms = max(pause_ms, 0)
        lease = job.lease or ""
        return Finish(job.id, "0-old.1" if pick % 17 == 16 else lease, outcome, content, pause_ms)
