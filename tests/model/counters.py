"""What was counted, in all and in each minute."""

MINUTE_MS = 60_000
KEPT_MS = 604_800_000


class Counters:
    """`totals` only grow; when a minute is over, what they grew by since `before` belongs to it."""

    def __init__(self) -> None:
        self.are_off = False
        self.minute: int | None = None
        self.totals: dict[str, int] = {}
        self.before: dict[str, int] = {}
        self.minutes: dict[str, tuple[dict[str, int], int]] = {}

    def count(self, now: int, kind: str, n: int = 1) -> None:
        if self.are_off:
            return
        if self.minute != now // MINUTE_MS:
            self._begin(now // MINUTE_MS)
        self.totals[kind] = self.totals.get(kind, 0) + n

    def of_minute(self, minute: int, kind: str) -> int:
        counts, _ = self.minutes.get(str(minute), ({}, 0))
        grown = self.totals.get(kind, 0) - self.before.get(kind, 0) if minute == self.minute else 0
        return counts.get(kind, 0) + grown

    def end_before(self, now: int) -> None:
        self.minutes = {minute: entry for minute, entry in self.minutes.items() if entry[1] >= now}

    def _begin(self, minute: int) -> None:
        if self.minute is not None:
            last = str(self.minute)
            counts, _ = self.minutes.get(last, ({}, 0))
            grown = {kind: total - self.before.get(kind, 0) for kind, total in self.totals.items()
                     if total != self.before.get(kind, 0)}  # fmt: skip
            counts = counts | {kind: counts.get(kind, 0) + n for kind, n in grown.items()}
            if counts:
                self.minutes[last] = counts, (self.minute + 1) * MINUTE_MS + KEPT_MS
        self.before |= self.totals
        self.minute = minute
