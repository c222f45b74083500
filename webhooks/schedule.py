"""When a message that was not taken is tried again."""

import random
from datetime import UTC
from email.utils import parsedate_to_datetime

import msgspec

from orchestrator.errors import InvalidOption
from orchestrator.job import MAX_ATTEMPTS

JITTER = 0.2
SLOW_DOWN = frozenset({429, 502, 504})  # the receiver, or what stands before it, has too much to do
SLOW_DOWN_S = 60.0


class Schedule(msgspec.Struct, frozen=True):
    """The pauses before the second and every later attempt, in seconds; the default ladder, worked out:

        attempt     1    2      3      4      5      6      7       8       9       10
        pause       0    5 s    5 min  30 min 2 h    5 h    10 h    14 h    20 h    24 h
        in all      0    5 s    5 min  35 min 2.6 h  7.6 h  17.6 h  31.6 h  51.6 h  75.6 h

    Each pause is drawn from ±20 % around its value. `Retry-After` replaces it, kept within one and two times the value.
    After a timeout and after 429, 502 or 504 it is at least a minute.
    """

    pauses_s: tuple[float, ...]
    slow_down_s: float = SLOW_DOWN_S

    def __post_init__(self) -> None:
        if self.attempts > MAX_ATTEMPTS:
            raise InvalidOption("KARGAH_WEBHOOK_RETRY_S", f"may name at most {MAX_ATTEMPTS - 1} pauses")

    @property
    def attempts(self) -> int:
        """How many attempts a message gets in all."""
        return len(self.pauses_s) + 1

    @property
    def longest_s(self) -> int:
        """More seconds than can lie between the first attempt and the last."""
        return round(2 * sum(self.pauses_s) + len(self.pauses_s) * self.slow_down_s) + 3600

    def pause_ms(
        self, attempt: int, *, slow_down: bool = False, retry_after_s: float | None = None, draw: float | None = None
    ) -> int:
        """The pause after attempt number `attempt` (≥ 1); `draw` in [0, 1) replaces chance. 0 after the last one."""
        if attempt > len(self.pauses_s):
            return 0
        base = self.pauses_s[attempt - 1]
        chance = random.random() if draw is None else draw
        pause = base * (1 - JITTER + 2 * JITTER * chance)
        if retry_after_s is not None:
            pause = min(max(retry_after_s, base), 2 * base)
        if slow_down:
            pause = max(pause, self.slow_down_s)
        return round(pause * 1000)


def parse_retry_after(value: str | None, now_s: float) -> float | None:
    """Seconds to wait as a `Retry-After` header says, in seconds or as a date; None for what is neither."""
    if value is None or len(value) > 64:
        return None
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now_s
