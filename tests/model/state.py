"""What a queue holds, and the steps that several calls share: into the queue and out of it, and telling."""

from typing import Any

from tests.model.counters import Counters
from tests.model.grouping import Grouping, by_score
from tests.model.job import FINISHED, MIDDLE, ModelJob
from tests.model.journal import Journal
from tests.model.limits import Limits
from tests.model.memory import Memory
from tests.model.windows import Window

ordered = by_score


class State(Grouping):
    """Jobs by id, and the indexes over them. `now` is the clock; nothing else tells the time."""

    def __init__(self, now: int, queue: str) -> None:
        super().__init__()
        self.now, self.queue = now, queue
        self.jobs: dict[str, ModelJob] = {}
        self.sequence = 0
        self.epoch: int | None = None
        self.marker = False
        self.looked_at: int | None = None
        self.grace_until: int | None = None
        self.deadlines: dict[str, int] = {}
        self.finished: dict[str, dict[str, int]] = {state: {} for state in FINISHED}
        self.expires: dict[str, dict[str, int]] = {state: {} for state in FINISHED}
        self.trims: dict[str, tuple[int, str]] = {}
        self.dead: dict[str, int] = {}
        self.sweep: dict[str, int] = {}
        self.previews: dict[str, tuple[str, int]] = {}
        self.dedup: dict[str, tuple[str, int]] = {}
        self.dedup_next: dict[str, dict[str, str]] = {}
        self.untold: dict[str, str] = {}
        self.untold_lists: dict[str, list[str]] = {}
        self.workers: dict[str, int] = {}
        self.worker_records: dict[str, tuple[str, int]] = {}
        self.limits = Limits()
        self.counters = Counters()
        self.memory = Memory()
        self.journal = Journal()

    def set_clock(self, now: int) -> None:
        """Time passes, or is set back; what has ended is gone."""
        self.now = now
        self.memory.end_before(now)
        self.limits.end_before(now)
        self.counters.end_before(now)
        for window in self.group_windows.values():
            window.end_before(now)
        self.previews = {name: entry for name, entry in self.previews.items() if entry[1] >= now}
        self.dedup = {name: entry for name, entry in self.dedup.items() if entry[1] >= now or entry[1] == -1}
        self.worker_records = {name: entry for name, entry in self.worker_records.items() if entry[1] >= now}
        ended = [job.id for job in self.jobs.values() if job.expires_at is not None and job.expires_at < now]
        for job_id in ended:
            del self.jobs[job_id]

    def of(self, *states: str) -> list[ModelJob]:
        """The jobs of some states, each state's in its order; of the waiting those without a group first."""
        found: list[ModelJob] = []
        for state in states:
            if state == "waiting":
                found += self.in_wait() + self.in_groups()
            else:
                jobs = [job for job in self.jobs.values() if job.state == state]
                found += sorted(jobs, key=_ORDER[state])
        return found

    def in_wait(self) -> list[ModelJob]:
        """The waiting jobs without a group, next first."""
        return _by_priority(job for job in self.jobs.values() if job.waits and job.group is None)

    def in_groups(self) -> list[ModelJob]:
        """The waiting jobs of all groups, by priority."""
        return _by_priority(job for job in self.jobs.values() if job.waits and job.group is not None)

    def in_batch(self, key: str) -> list[ModelJob]:
        """The waiting jobs of a batch key, next first."""
        return _by_priority(job for job in self.jobs.values() if job.waits and job.batch_key == key)

    def open(self) -> None:
        if self.epoch is None:
            self.epoch = self.now

    # ── into the queue, and out of it ────────────────────────────────────────────────────────────────

    def new_sequence(self, job: ModelJob) -> None:
        self.sequence += 1
        job.sequence = MIDDLE - self.sequence if job.header.lifo else MIDDLE + self.sequence
        if job.header.group or job.header.batch_key:
            job.entered_at = self.now

    def wake(self) -> None:
        if not self.limits.paused:
            self.marker = True

    def wait(self, job: ModelJob) -> None:
        job.state, job.due_at, job.waits = "waiting", None, True
        if job.header.group is None:
            fair = self.defaults.get("fair_ungrouped")
            job.ungrouped = None if fair is None else str(fair)
            if job.ungrouped and job.entered_at is None:
                job.entered_at = self.now
        if job.group is not None:
            self.enter_group(job, job.group)
        self.wake()

    def delay(self, job: ModelJob, due_at: int) -> None:
        job.state, job.due_at = "delayed", due_at
        if self.of("delayed")[0] is job:
            self.wake()

    def leave_wait(self, job: ModelJob) -> None:
        job.waits = False
        if job.group is not None:
            self.leave_group(job.group)

    def leave_waiting(self, job: ModelJob) -> None:
        if job.state == "waiting":
            self.leave_wait(job)
        self.deadlines.pop(job.id, None)

    def promote_job(self, job: ModelJob) -> None:
        self.new_sequence(job)
        self.wait(job)
        self.tell(job, "waiting", prev="delayed")

    def leave_active(self, job: ModelJob) -> None:
        job.reported = job.told_at = None
        self.leave_group_active(job)

    def leave_state(self, job_id: str, state: str) -> None:
        self.finished[state].pop(job_id, None)
        self.expires[state].pop(job_id, None)
        if state == "failed":
            self.dead.pop(job_id, None)

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────

    def tell(self, job: ModelJob, kind: str, **fields: Any) -> None:
        self.journal.job_event(self.now, job, kind, **fields)

    def tell_queue(self, kind: str, **fields: Any) -> None:
        self.journal.queue_event(self.now, kind, **fields)

    def count(self, kind: str, n: int = 1) -> None:
        self.counters.count(self.now, kind, n)

    def windows(self) -> dict[str, Window]:
        """All windows of starts, by key."""
        named = {"rate": self.limits.window}
        named |= {f"rate:{worker}": window for worker, window in self.limits.workers.items()}
        return named | {f"grate:{gid}": window for gid, window in self.group_windows.items()}


def _by_priority(jobs: Any) -> list[ModelJob]:
    return sorted(jobs, key=lambda job: (job.current_priority, job.member))


_ORDER: dict[str, Any] = {
    "delayed": lambda job: (job.due_at, job.member),
    "active": lambda job: (job.lease_ends_at, job.id),
    "waiting-children": lambda job: (job.parked_at, job.id),
    **dict.fromkeys(FINISHED, lambda job: (job.finished_at, job.id)),
}
