"""What a worker asks for with every claim."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from orchestrator.errors import InvalidOption
from orchestrator.given import check_kind
from orchestrator.group import Batch, RateLimit
from orchestrator.job import check_int

MAX_WARM = 32


class Wishes:
    """A limit of the worker's own, batches, and jobs that need what it has warm.

    slots: how many jobs one claim may bring.
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
        self._warm_keys = warm_keys
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
        if self._warm_keys and (warm := list(self._warm_keys())[:MAX_WARM]):
            wishes = wishes | {"warm": warm}
        return msgspec.json.encode(wishes) if wishes else b""
