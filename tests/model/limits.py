"""How many jobs may start now: pause, global concurrency, manual limit, the windows of the queue and of a worker."""

from tests.model.windows import Window

Rate = tuple[int, int]


class Limits:
    """The limits of a queue."""

    def __init__(self) -> None:
        self.paused = False
        self.concurrency: int | None = None
        self.rate: Rate | None = None
        self.limited_until: int | None = None
        self.max_waiting: int | None = None
        self.closing_until: int | None = None
        self.window = Window()
        self.workers: dict[str, Window] = {}

    def allowance(
        self, now: int, wish: int, active: int, worker: str, own: Rate | None
    ) -> tuple[int, int | None, bool]:
        """How many may start; after how many ms one more may, if time is what hinders; whether that is the worker's."""
        if self.paused:
            return 0, None, False
        if self.limited_until is not None and self.limited_until > now:
            return 0, self.limited_until - now, False
        if self.concurrency is not None:
            wish = max(0, min(wish, self.concurrency - active))
        allowed, limited_ms = (wish, None) if self.rate is None else self.window.allows(now, *self.rate, wish)
        if own is None:
            return allowed, limited_ms, False
        mine, mine_ms = self._of(worker).allows(now, *own, wish)
        if mine < allowed:
            return mine, mine_ms, True
        if limited_ms is not None and mine_ms is not None:
            limited_ms = max(limited_ms, mine_ms)
        return allowed, limited_ms, False

    def count_starts(self, now: int, count: int, worker: str, own: Rate | None) -> None:
        if not count:
            return
        if self.rate is not None:
            self.window.count(now, *self.rate, count)
        if own is not None:
            self._of(worker).count(now, *own, count)

    def limit_starts(self, now: int, duration_ms: int) -> None:
        """Nothing starts for so long, or longer where that was said before."""
        if duration_ms > 0 and now + duration_ms > (self.limited_until or 0):
            self.limited_until = now + duration_ms

    def end_before(self, now: int) -> None:
        for window in (self.window, *self.workers.values()):
            window.end_before(now)

    def _of(self, worker: str) -> Window:
        return self.workers.setdefault(worker, Window())
