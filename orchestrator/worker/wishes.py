"""What a worker asks for with every claim."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from orchestrator.errors import InvalidOption
from orchestrator.given import check_kind
from orchestrator.group import Batch, RateLimit
from orchestrator.job import check_int
from orchestrator.log import get_logger

log = get_logger("worker")

MAX_WARM = 32


class Wishes:
    """A limit of the worker's own, batches, and jobs that need what it has warm.

    slots: how many jobs one slot of the worker takes. is_choosy: what comes next depends on what came before it.
    warm_keys: tells the affinity keys of what is loaded, the most recent first; at most 32 are sent.
    """

    def __init__(
        self,
        limiter: RateLimit | None = None,
        batch: Batch | None = None,
        warm_keys: Callable[[], Sequence[str]] | None = None,
        affinity_patience_ms: int = 0,
    ) -> None:
        check_int("affinity_patience_ms", affinity_patience_ms, 0, 3_600_000)
        check_kind("limiter", limiter, RateLimit)
        check_kind("batch", batch, Batch)
        if warm_keys is not None and not callable(warm_keys):
            raise InvalidOption("warm_keys", "must be a function that returns a list of keys")
        if limiter:
            limiter.check("limiter")
        if batch:
            batch.check()
        self.slots = batch.size if batch else 1
        self.is_choosy = batch is not None or warm_keys is not None
        self._warm_keys = warm_keys
        self._is_failing = False
        self._fixed: dict[str, Any] = {}
        if limiter:
            self._fixed["limiter"] = [limiter.max_starts, limiter.duration_ms]
        if batch:
            self._fixed["batch"] = {"min_size": batch.min_size, "linger_ms": batch.linger_ms}
        if warm_keys:
            self._fixed["patience_ms"] = affinity_patience_ms

    def encode(self) -> bytes:
        """For the script; empty when there is nothing to ask for."""
        wishes = self._fixed
        if self._warm_keys and (warm := self._warm(self._warm_keys)):
            wishes = wishes | {"warm": warm}
        return msgspec.json.encode(wishes) if wishes else b""

    def _warm(self, warm_keys: Callable[[], Sequence[str]]) -> list[str]:
        """What the user's function tells; nothing when it fails: no claim, and no result, may be lost by that."""
        try:
            warm = [key for key in list(warm_keys())[:MAX_WARM] if isinstance(key, str)]
        except Exception as problem:
            if not self._is_failing:  # one line until it works again
                log.warning("worker.warm_keys_failed", problem=problem)
            self._is_failing = True
            return []
        self._is_failing = False
        return warm
