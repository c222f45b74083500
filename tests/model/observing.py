"""Calls that monitor a queue, and the heartbeats of its workers."""

from typing import Any

from orchestrator.metrics import KINDS
from orchestrator.presence import ALIVE_MS, read_worker
from tests.model.job import ModelJob
from tests.model.steering import Steering

GONE_AT_ONCE = 100
MOST_MINUTES = 1440
PRIORITIES = 16


class Observing(Steering):
    """What counts, and who is there."""

    def set_metrics(self, token: str, *, enabled: bool) -> None:
        def effect() -> str:
            self.open()
            self.counters.are_off = not enabled
            return "OK"

        self.once(token, effect)

    def get_metrics(self, kind: str, start_minute: int, end_minute: int) -> Any:
        present = self.now // 60_000
        end = end_minute or present
        start = start_minute if start_minute >= 1 else max(end + start_minute, 0)
        minutes = range(start, min(end, start + MOST_MINUTES - 1) + 1)
        return start, present, [self.counters.of_minute(minute, kind) for minute in minutes]

    def get_stats(self) -> Any:
        due = [job for job in self.of("delayed") if (job.due_at or 0) <= self.now]
        alive = [at for at in self.workers.values() if at >= self.now - ALIVE_MS]
        oldest = [self._oldest_ms(jobs) for jobs in (self.in_wait(), self.in_groups())]
        known = [each for each in oldest if each is not None]
        return self.limits.paused, len(due), len(alive), max(known, default=None), self._told_totals()

    def _told_totals(self) -> dict[str, int]:
        return {kind: self.counters.totals.get(kind, 0) for kind in KINDS} if self.counters.totals else {}

    def heartbeat(self, worker: str, record: bytes) -> int:
        if record:
            since = self.worker_records.get(worker, (str(self.now), 0))[0].partition(" ")[0]
            self.worker_records[worker] = f"{since} {record.decode()}", self.now + ALIVE_MS
            self.workers[worker] = self.now
        else:
            self.worker_records.pop(worker, None)
            self.workers.pop(worker, None)
        gone = [each for each, at in self.workers.items() if at < self.now - ALIVE_MS][:GONE_AT_ONCE]
        for each in gone:
            del self.workers[each]
        return len(gone)

    def get_workers(self, start: int, count: int) -> Any:
        alive = [(at, worker) for worker, at in self.workers.items() if at >= self.now - ALIVE_MS]
        found = [(at, self.worker_records[worker][0]) for at, worker in sorted(alive, reverse=True)[start:][:count]
                 if worker in self.worker_records]  # fmt: skip
        return [read_worker(str(at).encode(), text.encode()) for at, text in found], len(alive)

    def _oldest_ms(self, jobs: list[ModelJob]) -> int | None:
        firsts: dict[int, ModelJob] = {}
        for job in jobs:
            firsts.setdefault(job.current_priority, job)
        return max((max(self.now - job.waits_since, 0) for job in [*firsts.values()][:PRIORITIES]), default=None)
