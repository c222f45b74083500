"""A random history of calls against a model in plain Python; the invariants hold after every step.

Time is moved by moving scores back, as `Scene` does; the model has no clock.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orchestrator.errors import JobNotFound, LeaseLost, WrongState
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Finish, Report, connect
from tests.dump import dump, without
from tests.invariants import check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene
from tests.servers import Server

ERROR = b'{"kind":"transient","message":"oh","details":{}}'
MAX_JOBS = 12
FINISHED = ("completed", "failed", "canceled")

picks = st.integers(0, 10_000)


@dataclass
class ModelJob:
    """What the model knows of a job."""

    id: str
    state: str
    priority: int
    place: int
    lifo: bool
    attempts: int
    max_stalled: int
    run: int = 1
    made: int = 0
    started: int = 0
    stalled: int = 0
    is_canceled: bool = False
    lease: str | None = None
    seq: int = 1
    reported: int = 0
    lost: list[str] = field(default_factory=list)


class Machine(RuleBasedStateMachine):
    """The queue, and a model of it."""

    server: Server
    count = 0

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        Machine.count += 1
        self.client: Any = connect(self.server.url)
        self.scene = Scene(Queue(f"m{Machine.count}", self.client))
        self.scripts = self.scene.scripts
        self.jobs: dict[str, ModelJob] = {}
        self.made = 0
        self.sequence = 0
        self.paused = False

    def teardown(self) -> None:
        self.do(self.client.aclose())
        self.loop.close()

    def do(self, call: Any) -> Any:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(call)

    # ── the model ────────────────────────────────────────────────────────────────────────────────────

    def place(self, lifo: bool) -> int:
        self.sequence += 1
        return -self.sequence if lifo else self.sequence

    def waiting(self) -> list[ModelJob]:
        """The waiting jobs in the order in which they will start."""
        jobs = [job for job in self.jobs.values() if job.state == "waiting"]
        return sorted(jobs, key=lambda job: (job.priority, job.place))

    def some(self, pick: int, *states: str) -> ModelJob | None:
        jobs = [job for job in self.jobs.values() if job.state in states or not states]
        return jobs[pick % len(jobs)] if jobs else None

    def end(self, job: ModelJob, state: str) -> None:
        job.state, job.seq = state, job.seq + 1
        if job.lease:
            job.lost.append(job.lease)
        job.lease = None

    def back(self, job: ModelJob) -> None:
        """To waiting, at its old place."""
        self.end(job, "waiting")

    # ── rules ────────────────────────────────────────────────────────────────────────────────────────

    @initialize()
    def begin(self) -> None:
        self.do(self.scene.add("first"))
        self.jobs["first"] = ModelJob("first", "waiting", 0, self.place(False), False, 1, 1)

    @precondition(lambda self: len(self.jobs) < MAX_JOBS)
    @rule(
        priority=st.sampled_from([0, 0, 1, 2]),
        lifo=st.booleans(),
        delayed=st.booleans(),
        attempts=st.integers(1, 3),
        max_stalled=st.integers(0, 2),
    )
    def add(self, priority: int, lifo: bool, delayed: bool, attempts: int, max_stalled: int) -> None:
        self.made += 1
        job_id = f"j{self.made}"
        delay_ms = 50_000 if delayed else 0
        self.do(
            self.scene.add(
                job_id, priority=priority, lifo=lifo, delay_ms=delay_ms, attempts=attempts, max_stalled=max_stalled
            )
        )
        state = "delayed" if delayed else "waiting"
        self.jobs[job_id] = ModelJob(job_id, state, priority, self.place(lifo), lifo, attempts, max_stalled)

    @rule(pick=picks)
    def add_again(self, pick: int) -> None:
        if job := self.some(pick):
            again = self.do(self.scene.queue.add("other", None, JobOptions(id=job.id)))
            assert (again.duplicated, again.state, again.name) == (True, job.state, "paint")

    @rule(slots=st.integers(1, 3))
    def claim(self, slots: int) -> None:
        claims: list[Claim] = self.do(self.scene.claim(slots)).claims
        self.expect_claims(claims, slots)

    def expect_claims(self, claims: list[Claim], slots: int) -> None:
        expected = [] if self.paused else self.waiting()[:slots]
        assert [claim.job.id for claim in claims] == [job.id for job in expected]
        for claim, job in zip(claims, expected, strict=True):
            job.state, job.lease, job.seq, job.reported = "active", claim.lease, job.seq + 1, 0
            job.started += 1
            assert (claim.job.attempts_started, claim.job.attempts_made) == (job.started, job.made)
            assert (claim.job.priority, claim.job.run, claim.job.stalled) == (job.priority, job.run, job.stalled)

    @rule(pick=picks, repeat=st.booleans())
    def progress(self, pick: int, repeat: bool) -> None:
        if job := self.some(pick, "active"):
            number = job.reported if repeat else job.reported + 1
            cancel = self.do(self.scripts.update_progress(job.id, job.lease or "", Report(number, "", b"1")))
            assert (cancel is not None) == job.is_canceled
            if number > job.reported:
                job.reported, job.seq = number, job.seq + 1

    @rule(
        pick=picks,
        outcome=st.sampled_from(["completed", "completed", "failed", "failed", "canceled", "returned"]),
        pause_ms=st.sampled_from([-1, 0, 50_000]),
        slots=st.integers(0, 1),
    )
    def finish(self, pick: int, outcome: str, pause_ms: int, slots: int) -> None:
        job = self.some(pick, "active")
        if job is None:
            return
        finish = Finish(job.id, job.lease or "", outcome, b"1" if outcome == "completed" else ERROR, pause_ms)
        token = self.scene.token()
        call = (token, "w:2", "worker", LEASE_MS, INTERVAL_MS, slots, [finish])
        answer = self.do(self.scripts.move_to_finished(*call))
        if outcome != "returned":
            job.made += 1
        if outcome == "completed":
            self.end(job, "completed")
        elif job.is_canceled or outcome == "canceled":
            self.end(job, "canceled")
        elif outcome == "returned":
            self.back(job)
        elif pause_ms >= 0 and job.made < job.attempts:
            self.end(job, "delayed" if pause_ms else "waiting")
            job.place = self.place(job.lifo)
        else:
            self.end(job, "failed")
        assert answer.outcomes == [job.state]
        self.expect_claims(answer.claims, slots)
        again = self.do(self.scripts.move_to_finished(*call))
        assert (again.outcomes, [claim.lease for claim in again.claims]) == (
            answer.outcomes,
            [claim.lease for claim in answer.claims],
        )

    @rule(pick=picks)
    def act_with_an_old_lease(self, pick: int) -> None:
        job = self.some(pick)
        if job is None or not job.lost:
            return
        old = job.lost[pick % len(job.lost)]
        before = without(self.do(dump(self.client, self.scene.prefix)), "meta.looked_at", "meta.sequence")
        ending = Finish(job.id, old, "completed", b"9")
        assert self.do(
            self.scripts.move_to_finished(self.scene.token(), "w:3", "zombie", LEASE_MS, INTERVAL_MS, 0, [ending])
        ).outcomes == ["LEASE_LOST"]
        assert self.do(self.scripts.extend_locks(LEASE_MS, 1000, [(job.id, old)])) == [False]
        with pytest.raises(LeaseLost):
            self.do(self.scripts.update_progress(job.id, old, Report(999, "", b"9")))
        after = without(self.do(dump(self.client, self.scene.prefix)), "meta.looked_at", "meta.sequence")
        after.pop("marker", None)  # a call for no slots hands its wake-up on
        before.pop("marker", None)
        assert after == before

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        if job := self.some(pick):
            found = self.attempt(self.scene.queue.cancel(job.id, "me"), job, job.state not in FINISHED)
            if found is None:
                return
            if job.state != "active":
                self.end(job, "canceled")
                job.is_canceled = True
            elif not job.is_canceled:
                job.is_canceled, job.seq = True, job.seq + 1
            assert found.state == job.state

    @rule(pick=picks)
    def retry(self, pick: int) -> None:
        if (job := self.some(pick)) and self.attempt(self.scene.queue.retry(job.id), job, job.state in FINISHED):
            self.begin_run(job)

    def begin_run(self, job: ModelJob) -> None:
        job.state, job.place, job.run, job.seq = "waiting", self.place(job.lifo), job.run + 1, job.seq + 1
        job.made = job.started = job.stalled = 0
        job.is_canceled = False

    @rule(pick=picks)
    def remove(self, pick: int) -> None:
        if (job := self.some(pick)) and self.attempt(self.scene.queue.remove(job.id), job, job.state != "active"):
            del self.jobs[job.id]
            with pytest.raises(JobNotFound):
                self.do(self.scene.queue.retry(job.id))

    @rule(pick=picks)
    def promote(self, pick: int) -> None:
        if (job := self.some(pick)) and self.attempt(self.scene.queue.promote(job.id), job, job.state == "delayed"):
            job.state, job.place, job.seq = "waiting", self.place(job.lifo), job.seq + 1

    @rule(pick=picks, delay_ms=st.sampled_from([10_000, 50_000]))
    def change_delay(self, pick: int, delay_ms: int) -> None:
        job = self.some(pick)
        if job and self.attempt(self.scene.queue.change_delay(job.id, delay_ms), job, job.state == "delayed"):
            job.place, job.seq = self.place(job.lifo), job.seq + 1

    @rule(count=st.integers(1, 3))
    def promote_some(self, count: int) -> None:
        order = [m[17:] for m in self.do(self.texts("delayed"))][:count]
        assert self.do(self.scene.queue.promote_jobs(count)) == len(order)
        for job_id in order:
            job = self.jobs[job_id]
            job.state, job.place, job.seq = "waiting", self.place(job.lifo), job.seq + 1

    @rule(state=st.sampled_from(FINISHED), count=st.integers(1, 3))
    def retry_some(self, state: str, count: int) -> None:
        order = self.do(self.texts(state))[:count]
        assert self.do(self.scene.queue.retry_jobs(state, count)) == len(order)
        for job_id in order:
            self.begin_run(self.jobs[job_id])

    @rule(state=st.sampled_from(["waiting", "delayed", *FINISHED]), limit=st.integers(1, 2))
    def clean(self, state: str, limit: int) -> None:
        key = "wait" if state == "waiting" else state
        order = self.do(self.texts(key))[:limit]
        assert self.do(self.scene.queue.clean(0, limit, state)) == len(order)
        for member in order:
            del self.jobs[member[17:] if state in ("waiting", "delayed") else member]

    @rule(delayed=st.booleans())
    def drain(self, delayed: bool) -> None:
        gone = [job for job in self.jobs.values() if job.state == "waiting" or (delayed and job.state == "delayed")]
        assert self.do(self.scene.queue.drain(delayed=delayed)) == len(gone)
        for job in gone:
            del self.jobs[job.id]

    @rule(pick=picks, priority=st.sampled_from([0, 1, 2, 3]))
    def change_priority(self, pick: int, priority: int) -> None:
        job = self.some(pick)
        if job and self.attempt(self.scene.queue.change_priority(job.id, priority), job, job.state not in FINISHED):
            job.priority, job.seq = priority, job.seq + 1
            if job.state == "waiting":
                job.place = self.place(job.lifo)

    @rule()
    def pause_or_resume(self) -> None:
        self.do(self.scene.queue.resume() if self.paused else self.scene.queue.pause())
        self.paused = not self.paused

    @rule()
    def leases_end(self) -> None:
        self.do(self.scene.end_leases())
        active = [job for job in self.jobs.values() if job.state == "active"]
        assert self.do(self.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 100)) == len(active)
        for job in active:
            job.stalled, job.seq = job.stalled + 1, job.seq + 1
            if job.is_canceled:
                self.end(job, "canceled")
            elif job.stalled > job.max_stalled:
                self.end(job, "failed")
            else:
                self.back(job)

    @rule()
    def delays_end(self) -> None:
        order = [m[17:] for m in self.do(self.texts("delayed"))]
        self.do(self.scene.make_due())
        assert self.do(self.scripts.move_due_jobs(100)) == len(order)
        for job_id in order:
            job = self.jobs[job_id]
            job.state, job.place, job.seq = "waiting", self.place(job.lifo), job.seq + 1

    async def texts(self, key: str) -> list[str]:
        return [member.decode() for member in await self.client.zrange(f"{self.scene.prefix}{key}", 0, -1)]

    def attempt(self, call: Any, job: ModelJob, is_allowed: bool) -> Any:
        """Make a call that the state of the job allows, or see it refused."""
        try:
            answer = self.do(call)
        except WrongState:
            assert not is_allowed, f"the model has the job {job.state}"
            return None
        assert is_allowed, f"a {job.state} job should have refused"
        return answer

    # ── what always holds ────────────────────────────────────────────────────────────────────────────

    @invariant()
    def is_as_the_model(self) -> None:
        found = self.do(check_queue(self.scene.queue))
        jobs = {job.id: job for job in self.do(self.scene.queue.get_jobs(list(JobState), 0, 100))}
        assert set(jobs) == set(self.jobs)
        for job in self.jobs.values():
            real = jobs[job.id]
            assert (real.state, real.priority, real.run) == (job.state, job.priority, job.run)
            assert (real.attempts_made, real.attempts_started, real.stalled) == (job.made, job.started, job.stalled)
            assert int(found[f"state:{job.id}"]["v"]) == job.seq
            if job.state == "active":
                assert real.lease == job.lease
            assert self.do(self.scene.definition(job.id)) == self.scene.definitions[job.id]
        assert [member[17:] for member, _ in found.get("wait", [])] == [job.id for job in self.waiting()]
        if self.waiting() and not self.paused and not any(job.state == "active" for job in self.jobs.values()):
            assert "marker" in found, "somebody has to wake up"


def test_no_history_of_calls_leads_away_from_the_model(runtime_folder: Path, servers: Any) -> None:
    Machine.server = servers.get("valkey")
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
