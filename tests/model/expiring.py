"""What ends by itself: a value and the last instant at which it is still there."""

from typing import Generic, TypeVar

V = TypeVar("V")


class Expiring(Generic[V]):
    """Values by name, each with its end."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[V, int]] = {}

    def set(self, name: str, value: V, ends_at: int) -> None:
        self.entries[name] = (value, ends_at)

    def get(self, name: str) -> V | None:
        return self.entries[name][0] if name in self.entries else None

    def end_before(self, now: int) -> None:
        self.entries = {name: entry for name, entry in self.entries.items() if entry[1] >= now}
