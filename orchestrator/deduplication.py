"""Jobs that stand for each other: at most one of a deduplication id at a time."""

import msgspec

from orchestrator.backoff import MAX_DELAY_MS
from orchestrator.errors import InvalidOption
from orchestrator.keys import check_group_id


class Deduplication(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which jobs count as the same, and for how long. An add that meets another job answers with that one.

        simple     Deduplication(id)                         until that job has ended, or is gone
        throttle   Deduplication(id, ttl_ms)                 for ttl_ms from its add, whatever becomes of it
        debounce   Deduplication(id, ttl_ms, True, True)     each add replaces one that is still delayed
        keep last  Deduplication(id, keep_last_if_active=…)  while it runs, the newest add is kept and added at its end

    extend: each add that meets another job starts the time anew.
    replace: a delayed job is removed and the new one takes its place.

    Source: BullMQ's deduplication; a key without a time of its own never outlives its job here.
    """

    id: str = msgspec.field(name="i")
    ttl_ms: int | None = msgspec.field(name="t", default=None)
    extend: bool = msgspec.field(name="e", default=False)
    replace: bool = msgspec.field(name="r", default=False)
    keep_last_if_active: bool = msgspec.field(name="k", default=False)

    def check(self) -> None:
        """Raise `InvalidOption` for values out of range, or that do not go together."""
        check_group_id(self.id, "deduplication.id")
        for name in ("extend", "replace", "keep_last_if_active"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidOption(f"deduplication.{name}", "must be True or False")
        ttl = self.ttl_ms
        if ttl is None:
            if self.extend:
                raise InvalidOption("deduplication.extend", "needs a ttl_ms to extend")
            return
        if isinstance(ttl, bool) or not isinstance(ttl, int) or not 1 <= ttl <= MAX_DELAY_MS:
            raise InvalidOption("deduplication.ttl_ms", f"must be a whole number from 1 to {MAX_DELAY_MS}, or None")
        if self.keep_last_if_active:
            raise InvalidOption("deduplication.ttl_ms", "does not go with keep_last_if_active, which lasts as its job")
