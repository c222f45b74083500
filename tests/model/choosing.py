"""What a worker with wishes gets: jobs whose affinity key it has warm, and batches."""

from collections.abc import Callable
from typing import Any

from tests.model.ending import Ending
from tests.model.grouping import ModelGroup
from tests.model.job import ModelJob
from tests.model.memory import LINGERED_MS
from tests.model.state import ordered

WINDOW = 32
WINDOW_GROUPS = 8
MOST_LEAD = 4
MOST_EXAMINED = 64


class Choosing(Ending):
    """Chooses among the jobs whose turn is near."""

    _batches: dict[str, list[ModelJob]]
    """What is known of batches in this call."""
    _examined: int

    def take_by_wish(self, count: int, wishes: dict[str, Any], start: Callable[[ModelJob], None]) -> int | None:
        """Start what the worker wishes; in how many ms a batch is ready that is too small now."""
        ready_ms = None
        for _ in range(count):
            job, ready_ms = self._choose(wishes)
            if job is None:
                break
            self.leave_wait(job)
            start(job)
            if "batch" in wishes:
                self._fill_batch(job.batch_key, count - 1, start)
                break
        return ready_ms

    def leaves_wake_up(self, worker: str, ready_ms: int | None) -> bool:
        """Whether a worker that lingers wakes the next one: once for all that has come."""
        if not ready_ms or self.memory.lingered.get(worker) == str(self.sequence):
            return False
        self.memory.lingered.set(worker, str(self.sequence), self.now + LINGERED_MS)
        return True

    def _fill_batch(self, key: str | None, places: int, start: Callable[[ModelJob], None]) -> None:
        """With those of the key that are next; where some may not start, with those whose turn is near."""
        for near in (False, True):
            if key is None or places < 1 or not self.in_batch(key):
                return
            found = [job for job in self._near() if job.batch_key == key] if near else self.in_batch(key)[:places]
            for job in found:
                if places and self._may_start(job):
                    self.leave_wait(job)
                    start(job)
                    places -= 1

    def _choose(self, wishes: dict[str, Any]) -> tuple[ModelJob | None, int | None]:
        self._batches, self._examined = {}, 0
        window = self._near()
        found, passed, ready_ms = self._pick(window, wishes)
        if found is None:
            return None, 0 if not window and self.places["ring"] else ready_ms
        for job in passed:
            if job.passed_at is None:
                job.passed_at = self.now
        return found, None

    def _near(self) -> list[ModelJob]:
        """Those whose turn is near, in order: jobs without a group, then some of each of the next groups."""
        window = self.in_wait()[:WINDOW]
        if not self.grouped or len(window) == WINDOW:
            return window
        for gid in ordered(self.places["ring"])[:WINDOW_GROUPS]:
            group = self.load_group(gid)
            if self.held_until(group) is not None:
                self.settle(group)
            elif len(window) < WINDOW:
                window += self.waiting_of(gid)[: min(WINDOW // WINDOW_GROUPS, WINDOW - len(window))]
        return window

    def _pick(
        self, window: list[ModelJob], wishes: dict[str, Any]
    ) -> tuple[ModelJob | None, list[ModelJob], int | None]:
        first, ready_ms = None, None
        passed: list[ModelJob] = []
        heads: dict[str | None, int] = {}
        for job in window:
            left_ms = self._linger_left(job, wishes.get("batch"))
            if left_ms > 0:
                ready_ms = min(ready_ms or left_ms, left_ms)
                continue
            first = first or job
            heads.setdefault(job.group, _score(job))
            is_overdue = job.passed_at is not None and self.now - job.passed_at >= wishes.get("patience_ms", 0)
            if job is first and (job.affinity_key is None or is_overdue):
                return job, [], None
            if self._may_overtake(job, first, heads):
                if is_overdue or job.affinity_key in wishes.get("warm", []):
                    return job, passed, None
                passed.append(job)
        return first, [], ready_ms

    def _linger_left(self, job: ModelJob, batch: dict[str, int] | None) -> int:
        if not batch or job.batch_key is None or batch["min_size"] <= 1:
            return 0
        if job.batch_key not in self._batches:
            self._batches[job.batch_key] = self._startable(job.batch_key, batch["min_size"])
        ready = self._batches[job.batch_key]
        if len(ready) >= batch["min_size"]:
            return 0
        return max(((ready or [job])[0].entered_at or 0) + batch["linger_ms"] - self.now, 0)

    def _startable(self, key: str, enough: int) -> list[ModelJob]:
        """Those of a batch that count: of groups that may start."""
        members = self.in_batch(key)[: max(WINDOW, enough)]
        if not self.grouped or self._examined >= MOST_EXAMINED:
            return members
        found: list[ModelJob] = []
        for job in members:
            if len(found) < enough:
                self._examined += 1
                if self._may_start(job):
                    found.append(job)
        return found

    def _may_start(self, job: ModelJob) -> bool:
        return job.group is None or self.held_until(self.load_group(job.group)) is None

    def _may_overtake(self, job: ModelJob, first: ModelJob, heads: dict[str | None, int]) -> bool:
        if (job.group is None) != (first.group is None) or heads[job.group] != _score(job):
            return False
        if job.group is None or first.group is None:
            return True
        mine: ModelGroup = self.load_group(job.group)
        return mine.tag - self.load_group(first.group).tag <= MOST_LEAD / mine.weight


def _score(job: ModelJob) -> int:
    return job.current_priority if job.group is None else job.group_score
