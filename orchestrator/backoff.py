"""How long to wait before the next attempt."""

import random
import re

import msgspec

from orchestrator.errors import InvalidOption

BUILT_IN = ("fixed", "exponential")
MAX_DELAY_MS = 10 * 365 * 24 * 3600 * 1000  # ten years: beyond it a delay is a mistake


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pause between attempts.

    `delay_ms` is the first pause. `exponential` doubles it each time:

        attempts made   1    2     3     4
        pause           d   2·d   4·d   8·d      (never above `max_ms`)

    `jitter` in [0, 1] draws the pause uniformly from [d·(1 − jitter), d].

    Any other `type` names a strategy of the worker (`Worker(backoff_strategies=…)`), which says the pause; of the other
    fields only `max_ms` counts then.

    Source: BullMQ's built-in strategies; `max_ms` is ours.
    """

    type: str = "exponential"
    delay_ms: int = 0
    jitter: float = 0.0
    max_ms: int | None = None

    def check(self) -> None:
        """Raise `InvalidOption` for a value out of range."""
        if not isinstance(self.type, str) or not _NAME.fullmatch(self.type):
            raise InvalidOption("backoff.type", "must be fixed, exponential, or the name of a strategy of the worker")
        if not _is_ms(self.delay_ms):
            raise InvalidOption("backoff.delay_ms", f"must be 0 to {MAX_DELAY_MS} milliseconds")
        if not isinstance(self.jitter, float | int) or not 0.0 <= self.jitter <= 1.0:
            raise InvalidOption("backoff.jitter", "must be between 0 and 1")
        if self.max_ms is not None and not _is_ms(self.max_ms):
            raise InvalidOption("backoff.max_ms", f"must be 0 to {MAX_DELAY_MS} milliseconds")

    @property
    def is_built_in(self) -> bool:
        """Whether `pause_ms` knows the pause; else a strategy of the worker does."""
        return self.type in BUILT_IN

    def capped(self, pause_ms: int) -> int:
        """`pause_ms`, but at most `max_ms`."""
        return pause_ms if self.max_ms is None else min(pause_ms, self.max_ms)

    def pause_ms(self, attempts_made: int, draw: float | None = None) -> int:
        """The pause after `attempts_made` (≥ 1) attempts; `draw` in [0, 1) replaces chance."""
        pause = self.delay_ms
        if self.type == "exponential":
            pause = min(self.delay_ms << min(attempts_made - 1, 60), MAX_DELAY_MS)
        chance = random.random() if draw is None else draw
        return round(self.capped(pause) * (1.0 - self.jitter * chance))


def _is_ms(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_DELAY_MS
