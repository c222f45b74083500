"""Calls about groups and turns."""

from typing import Any

from tests.model.grouping import ModelGroup
from tests.model.reading import Reading, read_job
from tests.model.state import ordered
from tests.model.steering import Steering

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
            if group.place == "ring":
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

    def _read_group(self, group: ModelGroup) -> dict[str, Any]:
        settings = group.settings
        return {
            "id": group.id, "place": group.place or "idle", "waiting": len(self.waiting_of(group.id)),
            "active": group.active, "weight": group.weight, "tag": group.tag, "ageing": settings.get("ageing", 0),
            "paused": bool(settings.get("paused")), **{name: settings.get(name) for name in OPTIONAL},
        }  # fmt: skip
