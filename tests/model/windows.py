"""A true sliding window: at most so many starts in any stretch of its length."""


class Window:
    """The newest starts first, as many as the limit counts; they are forgotten when the last is old enough."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends_at = 0

    def allows(self, now: int, most: int, length_ms: int, wish: int) -> tuple[int, int | None]:
        """How many of `wish` may start now, and after how many ms one more may, if fewer."""
        times = [*reversed(self.starts)]
        for count in range(wish):
            past = ([*times, *[now] * count])[-most:]
            if len(past) == most and now - past[0] < length_ms:
                return count, past[0] + length_ms - now
        return wish, None

    def count(self, now: int, most: int, length_ms: int, starts: int) -> None:
        self.starts = ([now] * starts + self.starts)[:most]
        self.ends_at = now + length_ms

    def end_before(self, now: int) -> None:
        if self.ends_at < now:
            self.starts = []
