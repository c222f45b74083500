"""Operators cancel, retry, remove, promote, pause, and set limits."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.model.job import FINISHED
from tests.model.rules.weighted import RuledMachine, is_any_running, picks, rule


class SteeringRules(RuledMachine):
    """What operators do."""

    @rule(1, pick=picks, reason=st.sampled_from(["", "why"]))
    def cancel(self, pick: int, reason: str) -> None:
        cancel = msgspec.json.encode({"by": "me", "reason": reason})
        self.call("cancel_job", self.token(), self.any_id(pick), cancel)

    @rule(1, when=is_any_running, pick=picks)
    def cancel_running(self, pick: int) -> None:
        if job := self.some(pick, "active"):
            self.call("cancel_job", self.token(), job.id, b'{"by":"me","reason":""}')

    @rule(2, pick=picks)
    def retry(self, pick: int) -> None:
        job = self.some(pick, *FINISHED)
        self.call("reprocess_job", self.token(), job.id if job else self.any_id(pick))

    @rule(2, when=lambda self: self.model.dedup, pick=picks)
    def retry_one_with_a_key(self, pick: int) -> None:
        ended = [job for job in self.model.of(*FINISHED) if job.header.deduplication]
        if ended:
            self.call("reprocess_job", self.token(), ended[pick % len(ended)].id)

    @rule(2, pick=picks)
    def remove(self, pick: int) -> None:
        self.call("remove_job", self.token(), self.any_id(pick))

    @rule(1, pick=picks)
    def promote(self, pick: int) -> None:
        job = self.some(pick, "delayed")
        self.call("promote", self.token(), job.id if job else self.any_id(pick))

    @rule(2, when=lambda self: self.model.of("delayed"), pick=picks, delay_ms=st.sampled_from([0, 500, 5000]))
    def change_delay(self, pick: int, delay_ms: int) -> None:
        job = self.some(pick, "delayed")
        self.call("change_delay", self.token(), job.id if job and pick % 5 else self.any_id(pick), delay_ms)

    @rule(2, pick=picks, priority=st.integers(0, 3))
    def change_priority(self, pick: int, priority: int) -> None:
        self.call("change_priority", self.token(), self.any_id(pick), priority)

    @rule(1, paused=st.sampled_from([True, False, False, False]))
    def pause_or_resume(self, paused: bool) -> None:
        self.call("pause", self.token(), paused=paused)

    @rule(2, limits=st.sampled_from([
        {"concurrency": 1}, {"concurrency": 2}, {"concurrency": 0}, {"concurrency": 0, "rate": (0, 0)},
        {"rate": (1, 1000)}, {"rate": (2, 1500)}, {"rate": (3, 5000)}, {"rate": (0, 0)}, {"limited_ms": 2000},
        {"limited_ms": 0}, {"concurrency": 0, "rate": (0, 0), "limited_ms": 0},
        {"max_waiting": 4}, {"max_waiting": 0}, {"max_waiting": 0},
    ]))  # fmt: skip
    def set_limits(self, limits: dict[str, Any]) -> None:
        self.call("set_limits", self.token(), **limits)
