"""Tells how far a training phase is: a bar on the terminal, a line now and then in a log."""

import sys
import time


class Progress:
    """The clock of one phase that lasts a given time; spent seconds of an interrupted run can be handed in."""

    def __init__(self, name: str, minutes: float, spent_s: float = 0.0):
        self.name = name
        self.total_s = max(minutes * 60.0, 1e-6)
        self.start = time.monotonic() - spent_s
        self.shown = 0.0

    @property
    def spent_s(self) -> float:
        """Seconds used up so far, earlier runs included."""
        return time.monotonic() - self.start

    @property
    def fraction(self) -> float:
        """Share of the phase that is over, 0 to 1."""
        return min(self.spent_s / self.total_s, 1.0)

    def show(self, step: int, text: str) -> None:
        """Draws the bar, twice a second on a terminal and every twenty seconds elsewhere."""
        terminal = sys.stderr.isatty()
        now = time.monotonic()
        if now - self.shown < (0.5 if terminal else 20.0) and self.fraction < 1.0:
            return
        self.shown = now
        done = int(self.fraction * 24)
        left = max(self.total_s - self.spent_s, 0.0)
        bar = "#" * done + "." * (24 - done)
        line = f"{self.name} [{bar}] {self.fraction:4.0%} step {step} {text} {left / 60:.1f} min left"
        print(f"\r{line}\033[K" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)
