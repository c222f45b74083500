"""How many jobs may start now: pause, global concurrency, manual limit, sliding window."""


class Limits:
    """The limits of a queue. `starts`: the newest first, as far as the window needs them."""

    def __init__(self) -> None:
        self.paused = False
        self.concurrency: int | None = None
        self.rate: tuple[int, int] | None = None
        self.limited_until: int | None = None
        self.starts: list[int] = []
        self.starts_end_at = 0

    def allowance(self, now: int, wish: int, active: int) -> tuple[int, int | None]:
        """How many may start, and after how many ms one more may, if time is what hinders."""
        if self.paused:
            return 0, None
        if self.limited_until is not None and self.limited_until > now:
            return 0, self.limited_until - now
        if self.concurrency is not None:
            wish = max(0, min(wish, self.concurrency - active))
        if self.rate is not None:
            most, window_ms = self.rate
            times = [*reversed(self.starts)]
            for count in range(wish):
                past = ([*times, *[now] * count])[-most:]
                if len(past) == most and now - past[0] < window_ms:
                    return count, past[0] + window_ms - now
        return wish, None

    def count_starts(self, now: int, count: int) -> None:
        if self.rate is not None and count:
            most, window_ms = self.rate
            self.starts = ([now] * count + self.starts)[:most]
            self.starts_end_at = now + window_ms

    def end_before(self, now: int) -> None:
        if self.starts_end_at < now:
            self.starts = []
