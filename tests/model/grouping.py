"""Fair sharing between groups: the ring by virtual time, held groups, idle ones."""

from typing import Any

from tests.model.job import ModelJob
from tests.model.windows import Window

NEVER = 2**53 - 1
MOST_CORRECTION = 4
GRAIN_MS = 50
HELD_AT_ONCE = 16
IDLE_MS = 3_600_000


class ModelGroup:
    """A group. `settings`: weight, concurrency, rate_max, rate_ms, max_waiting, paused, limited_until, ageing."""

    def __init__(self, gid: str) -> None:
        self.id = gid
        self.place: str | None = None
        self.tag = 0.0
        self.active = 0
        self.settings: dict[str, Any] = {}

    @property
    def weight(self) -> float:
        return float(self.settings.get("weight", 1))


class Grouping:
    """All groups of a queue. `places`: ring, held and idle, each with the groups' scores."""

    now: int
    jobs: dict[str, ModelJob]

    def __init__(self) -> None:
        self.grouped = False
        self.vtime: float | None = None
        self.pace: float | None = None
        self.defaults: dict[str, int] = {}
        self.groups: dict[str, ModelGroup] = {}
        self.places: dict[str, dict[str, float]] = {"ring": {}, "held": {}, "idle": {}}
        self.group_windows: dict[str, Window] = {}

    def load_group(self, gid: str) -> ModelGroup:
        """The group as it is, or one that is kept only when it is settled."""
        return self.groups.get(gid) or ModelGroup(gid)

    def group_limit(self, group: ModelGroup, name: str) -> int | None:
        limit = group.settings.get(name)
        limit = self.defaults.get(f"group_{name}", 0) if limit is None else limit
        return int(limit) if limit > 0 else None

    def waiting_of(self, gid: str) -> list[ModelJob]:
        """The waiting jobs of a group, next first."""
        jobs = [job for job in self.jobs.values() if job.waits and job.group == gid]
        return sorted(jobs, key=lambda job: (job.group_score, job.member))

    def held_until(self, group: ModelGroup) -> int | None:
        """Until when it may not start a job; None: it may."""
        if group.settings.get("paused"):
            return NEVER
        limited_until = group.settings.get("limited_until", 0)
        if limited_until > self.now:
            return int(limited_until)
        concurrency, rate_max = self.group_limit(group, "concurrency"), self.group_limit(group, "rate_max")
        if concurrency and group.active >= concurrency:
            return NEVER
        if rate_max:
            length_ms = self.group_limit(group, "rate_ms") or 0
            _, limited_ms = self._window(group).allows(self.now, rate_max, length_ms, 1)
            return None if limited_ms is None else self.now + limited_ms
        return None

    def settle(self, group: ModelGroup) -> None:
        """Put it where it belongs now."""
        place, score = "idle", float(self.now)
        if self.waiting_of(group.id):
            held = self.held_until(group)
            if held is not None:
                place, score = "held", held
            else:
                if group.place != "ring":
                    group.tag = max(group.tag, self.vtime or 0)
                place, score = "ring", group.tag
        for scores in self.places.values():
            scores.pop(group.id, None)
        self.places[place][group.id] = score
        group.place = place
        self.groups[group.id] = group

    def settle_held(self) -> None:
        due = [gid for gid in by_score(self.places["held"]) if self.places["held"][gid] <= self.now]
        for gid in due[:HELD_AT_ONCE]:
            self.settle(self.load_group(gid))

    def next_group(self) -> tuple[ModelGroup | None, bool]:
        """Whose turn it is; or none, and whether more are to be looked at."""
        for _ in range(HELD_AT_ONCE):
            if not self.places["ring"]:
                return None, False
            group = self.load_group(by_score(self.places["ring"])[0])
            if self.held_until(group) is None:
                return group, False
            self.settle(group)
        return None, bool(self.places["ring"])

    def charge(self, job: ModelJob) -> None:
        """A job of a group starts: its turn moves on by what the job is expected to cost."""
        if not self.grouped or job.group is None:
            return
        group = self.load_group(job.group)
        if group.tag > (self.vtime or 0):
            self.vtime = group.tag
        group.tag = max(group.tag, self.vtime or 0) + job.header.cost / group.weight
        group.active += 1
        if rate_max := self.group_limit(group, "rate_max"):
            self._window(group).count(self.now, rate_max, self.group_limit(group, "rate_ms") or 0, 1)
        self.settle(group)

    def leave_group_active(self, job: ModelJob) -> None:
        if self.grouped and job.group is not None:
            group = self.load_group(job.group)
            group.active = max(group.active - 1, 0)
            self._correct(group, job)
            self.settle(group)

    def enter_group(self, job: ModelJob, gid: str) -> None:
        group = self.load_group(gid)
        is_new = group.place in (None, "idle")
        ageing = self.defaults.get("ageing_ms", 0)
        if is_new and ageing != group.settings.get("ageing", 0):
            group.settings["ageing"] = ageing
        step_ms = group.settings.get("ageing", 0)
        job.group_score = job.current_priority * step_ms + (job.entered_at or 0) if step_ms else job.current_priority
        self.grouped = True
        if is_new:
            self.settle(group)

    def leave_group(self, gid: str) -> None:
        if not self.waiting_of(gid):
            self.settle(self.load_group(gid))

    def forget_idle_groups(self) -> None:
        idle = self.places["idle"]
        for gid in [each for each in by_score(idle) if idle[each] <= self.now - IDLE_MS][:HELD_AT_ONCE]:
            group = self.load_group(gid)
            names = ("weight", "concurrency", "rate_max", "max_waiting", "paused")
            is_limited = group.settings.get("limited_until", 0) > self.now
            if is_limited or any(group.settings.get(name) is not None for name in names) or group.active > 0:
                idle[gid] = self.now
            else:
                del idle[gid]
                self.groups.pop(gid, None)

    def _correct(self, group: ModelGroup, job: ModelJob) -> None:
        """Charge what the attempt took instead of what was expected, in units of what a unit of cost usually takes."""
        cost, took_ms = job.header.cost, max(self.now - (job.started_at or 0), 0)
        pace = took_ms / cost if self.pace is None else self.pace
        if max(took_ms, pace * cost) < GRAIN_MS:
            return
        measured = max(min(took_ms / pace, cost * MOST_CORRECTION), cost / MOST_CORRECTION)
        group.tag = max(group.tag + (measured - cost) / group.weight, self.vtime or 0)
        self.pace = 0.9 * pace + 0.1 * took_ms / cost

    def _window(self, group: ModelGroup) -> Window:
        return self.group_windows.setdefault(group.id, Window())


def by_score(scores: dict[str, Any]) -> list[str]:
    """The members of a sorted set in its order."""
    return sorted(scores, key=lambda member: (scores[member], member))
