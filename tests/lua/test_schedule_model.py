"""A random history of schedules and of their jobs against a model in plain Python. Time is moved by hand."""

import asyncio
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from orchestrator.duties import ScheduleFiller
from orchestrator.job import JobState
from orchestrator.queue import Queue
from orchestrator.schedule import SLOTS_AHEAD, JobTemplate, RepeatOptions
from orchestrator.scripts import Claim, connect
from tests.invariants import check_queue
from tests.lua.scene import Scene
from tests.lua.scheduling import pass_slots, upsert
from tests.servers import Server

CRON = "*/5 * * * *"
ERROR = b'{"kind":"poison","message":"","details":{}}'
ids = st.sampled_from(["a", "b"])


@dataclass
class ModelSchedule:
    """What the model knows of a schedule. `waits`: its newest job has not started."""

    timing: int | str
    template: int
    limit: int | None
    made: int = 0
    skipped: int = 0
    slots: int = 0
    waits: bool = False

    @property
    def is_finished(self) -> bool:
        return self.limit is not None and self.made >= self.limit


class Machine(RuleBasedStateMachine):
    """A queue with at most two schedules, and a model of it."""

    server: Server
    count = 0

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        Machine.count += 1
        self.client: Any = connect(self.server.url)
        self.scene = Scene(Queue(f"schedules{Machine.count}", self.client))
        self.queue = self.scene.queue
        self.model: dict[str, ModelSchedule] = {}
        self.running: list[Claim] = []

    def teardown(self) -> None:
        self.do(self.client.aclose())
        self.loop.close()

    def do(self, call: Any) -> Any:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(call)

    @rule(
        name=ids,
        timing=st.sampled_from([60_000, 60_000, 90_000, CRON, CRON]),
        limit=st.sampled_from([None, None, 1, 3]),
        template=st.integers(1, 2),
        keep=st.sampled_from([3, SLOTS_AHEAD]),
    )
    def upsert(self, name: str, timing: int | str, limit: int | None, template: int, keep: int) -> None:
        is_cron = isinstance(timing, str)
        repeat = RepeatOptions(cron=timing, limit=limit) if is_cron else RepeatOptions(every_ms=timing, limit=limit)  # type: ignore[arg-type]
        made = self.do(upsert(self.scene, name, repeat, JobTemplate("s", template), keep_slots=keep))
        known = self.model.get(name)
        if known is None or known.timing != timing:
            known = self.model[name] = ModelSchedule(timing, template, limit)
            if not is_cron:
                known.made, known.waits = 1, True
        known.template, known.limit = template, limit
        known.slots = keep
        assert (made.made, made.repeat.limit) == (known.made, limit)

    @rule(name=ids, count=st.integers(1, 3))
    def slots_come(self, name: str, count: int) -> None:
        known = self.model.get(name)
        if known is None or known.is_finished:
            return
        if known.timing == CRON:
            count = min(count, known.slots)
            known.slots -= count
        if count:
            self.do(pass_slots(self.scene, name, count))
            assert self.do(self.scene.scripts.move_due_jobs(100)) == 1
            known.skipped += count if known.waits else count - 1
            known.made += not known.waits
            known.waits = True

    @rule()
    def fill(self) -> None:
        self.do(ScheduleFiller(self.queue).step())
        for known in self.model.values():
            if known.timing == CRON and known.slots < 8 and not known.is_finished:
                known.slots += SLOTS_AHEAD

    @rule()
    def start(self) -> None:
        for claim in self.do(self.scene.claim(1)).claims:
            self.running.append(claim)
            if claim.job.attempts_started == 1:  # else it was handed back, and its schedule may be gone
                known = self.model[claim.job.header.schedule or ""]
                known.waits = False
                assert claim.job.data_as(int) == known.template

    @rule(outcome=st.sampled_from(["completed", "failed", "returned"]))
    def end(self, outcome: str) -> None:
        if self.running:
            self.do(self.scene.finish(self.running.pop(), outcome, ERROR))

    @rule(name=ids, how=st.sampled_from(["remove", "cancel"]))
    def somebody_takes_the_waiting_job(self, name: str, how: str) -> None:
        known = self.model.get(name)
        if known is not None and known.waits:
            found = self.do(self.queue.get_job_scheduler(name))
            self.do(getattr(self.queue, how)(found.last_job_id))
            known.waits = False

    @rule(name=ids)
    def remove(self, name: str) -> None:
        assert self.do(self.queue.remove_job_scheduler(name)) == (name in self.model)
        self.model.pop(name, None)

    @invariant()
    def is_as_the_model(self) -> None:
        self.do(check_queue(self.queue))
        found = {each.id: each for each in self.do(self.queue.get_job_schedulers())}
        assert found.keys() == self.model.keys()
        for name, known in self.model.items():
            real = found[name]
            assert (real.made, real.skipped, real.is_finished) == (known.made, known.skipped, known.is_finished)
            assert (real.next_at is None) == (known.is_finished or (known.timing == CRON and not known.slots))
        waiting = self.do(self.queue.get_jobs([JobState.WAITING]))
        returned = [job for job in waiting if job.attempts_started]
        unstarted = {job.id for job in waiting if not job.attempts_started}
        assert unstarted == {found[name].last_job_id for name, known in self.model.items() if known.waits}
        assert len(waiting) == len(unstarted) + len(returned)


def test_no_history_of_schedules_leads_away_from_the_model(servers: Any) -> None:
    Machine.server = servers.get("valkey")
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
