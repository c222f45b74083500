"""Calls about groups and turns."""

from math import floor
from typing import Any

from tests.model.grouping import NEVER, ModelGroup
from tests.model.job import ModelJob
from tests.model.reading import Reading, read_job
from tests.model.state import ordered
from tests.model.steering import Steering

MOST_GROUPS = 64
RECENT = 20
OPTIONAL = ("concurrency", "rate_max", "rate_ms", "max_waiting", "limited_until")


class Sharing(Steering, Reading):
    """What is done with groups."""

    def set_group(self, token: str, gid: str, changes: dict[str, Any]) -> None:
        def effect() -> str:
            self.open()
            group = self.load_group(gid)
            was_paused = bool(group.settings.get("paused"))
            for name, value in changes.items():
                if name == "limited_ms":
                    group.settings["limited_until"] = self.now + value
                elif value is None or value is False:
                    group.settings.pop(name, None)
                else:
                    group.settings[name] = value
            self.grouped = True
            self.settle(group)
            if group.place != "idle":
                self.wake()
            is_paused = bool(group.settings.get("paused"))
            if is_paused != was_paused:
                self.tell_queue("paused" if is_paused else "resumed", group=gid)
            return "OK"

        self.once(token, effect)

    def set_group_defaults(self, token: str, changes: dict[str, int]) -> None:
        def effect() -> str:
            self.open()
            self.defaults = {name: value for name, value in (self.defaults | changes).items() if value}
            self.places["held"] = dict.fromkeys(self.places["held"], 0)
            self.wake()
            return "OK"

        self.once(token, effect)

    def get_groups(self, start: int, count: int) -> Any:
        ids = [gid for place in ("ring", "held", "idle") for gid in ordered(self.places[place])]
        return len(ids), [self._read_group(self.groups[gid]) for gid in ids[start : start + count]]

    def get_group(self, gid: str, start: int, count: int) -> Any:
        jobs = self.waiting_of(gid)[start : start + count] if count else []
        return self._read_group(self.load_group(gid)), [read_job(job) for job in jobs]

    def get_position(self, job_id: str) -> Any:
        job = self.jobs.get(job_id)
        if job is None:
            return {}
        limits, active = self.limits, len(self.of("active"))
        limited_until = limits.limited_until if (limits.limited_until or 0) > self.now else None
        said = {"state": job.state, "due_at": job.due_at, "active": active, "limited_until": limited_until}
        said["paused"] = "1" if limits.paused else None
        said["maxed"] = "1" if limits.concurrency and active >= limits.concurrency else None
        if job.waits and job.group is not None:
            said |= self._say_group(job, job.group)
        elif job.waits:
            said |= {"ahead": self.in_wait().index(job), "is_estimate": "0"}
        if job.waits:
            newest = [
                self.jobs[done] for done in ordered(self.finished["completed"])[::-1][:RECENT] if done in self.jobs
            ]
            timed = [done for done in newest if done.started_at and done.finished_at]
            said["recent"] = len(timed)
            said["recent_ms"] = sum((done.finished_at or 0) - (done.started_at or 0) for done in timed)
        return {name: str(value) for name, value in said.items() if value is not None}

    def _say_group(self, job: ModelJob, gid: str) -> dict[str, Any]:
        group, held = self.load_group(gid), self.held_until(self.load_group(gid))
        rank, cost = self.waiting_of(gid).index(job), job.header.cost
        at = max(group.tag, self.vtime or 0) + rank * cost / group.weight
        others = ordered(self.places["ring"])[:MOST_GROUPS]
        before = [self._jobs_before(self.load_group(other), at, cost) for other in others if other != gid]
        return {
            "group": gid, "group_place": group.place, "group_active": group.active,
            "group_paused": "1" if group.settings.get("paused") else None,
            "group_limited_until": held if held is not None and held < NEVER else None,
            "ahead": len(self.in_wait()) + rank + sum(before), "is_estimate": str(int(len(others) > 1)),
        }  # fmt: skip

    def _jobs_before(self, group: ModelGroup, at: float, cost: float) -> int:
        if self.held_until(group) is not None or group.tag > at:
            return 0
        turns = floor((at - group.tag) * group.weight / cost) + 1
        return min(turns, len(self.waiting_of(group.id)))

    def _read_group(self, group: ModelGroup) -> dict[str, Any]:
        settings = group.settings
        return {
            "id": group.id, "place": group.place or "idle", "waiting": len(self.waiting_of(group.id)),
            "active": group.active, "weight": group.weight, "tag": group.tag, "ageing": settings.get("ageing", 0),
            "paused": bool(settings.get("paused")), **{name: settings.get(name) for name in OPTIONAL},
        }  # fmt: skip
