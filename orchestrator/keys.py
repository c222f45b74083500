"""Names: queues, jobs, request tokens, and the Redis keys built from them."""

import functools
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from typing import AnyStr, Generic, TypeVar

from orchestrator.errors import InvalidOption

PREFIX = "kargah"
QUEUES_KEY = "kargah:queues"

_WORD = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
_QUEUE_NAME = re.compile(rf"(?:\{{({_WORD})\}})?{_WORD}")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _CROCKFORD for second in _CROCKFORD]
_MOMENT_SHIFTS = range(40, -1, -10)
_CHANCE_SHIFTS = range(70, -1, -10)
_CHANCE_BYTES, _TOKEN_CHARS = 10, 12
_AT_ONCE = 64
_T = TypeVar("_T")


class _Stock(Generic[_T]):
    """Random things, made many at a time: asking the system for each takes longer than all else."""

    def __init__(self, make: Callable[[], Iterable[_T]]) -> None:
        self._make = make
        self._left: list[_T] = []
        os.register_at_fork(after_in_child=self._left.clear)

    def take(self) -> _T:
        """One that nobody else gets."""
        while True:
            try:
                return self._left.pop()
            except IndexError:  # also where another thread was faster
                self._left.extend(self._make())


def _cut(whole: AnyStr, size: int) -> list[AnyStr]:
    return [whole[at : at + size] for at in range(0, len(whole), size)]


_chances = _Stock(lambda: map(int.from_bytes, _cut(secrets.token_bytes(_AT_ONCE * _CHANCE_BYTES), _CHANCE_BYTES)))
_tokens = _Stock(lambda: _cut(secrets.token_urlsafe(_AT_ONCE * _TOKEN_CHARS * 3 // 4), _TOKEN_CHARS))


def new_job_id() -> str:
    """A UUIDv7 as 26 characters of Crockford's base32, made before anything is sent.

    Its time part only spreads ids well; nothing ever reads a time or an order from it.
    Source: RFC 9562 (UUIDv7), the text form of TypeID.
    """
    chance = _chances.take()
    number = 0x7 << 76 | (chance >> 62 & 0xFFF) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    return _moment(time.time_ns() // 1_000_000) + "".join([_PAIRS[number >> shift & 1023] for shift in _CHANCE_SHIFTS])


@functools.lru_cache(maxsize=1)
def _moment(ms: int) -> str:
    return "".join([_PAIRS[ms >> shift & 1023] for shift in _MOMENT_SHIFTS])


def new_token() -> str:
    """A request token: made once per call, the same in every re-send of that call."""
    return _tokens.take()


def check_queue_name(name: str) -> str:
    """Return `name`, or raise `InvalidOption`."""
    if not isinstance(name, str) or not _QUEUE_NAME.fullmatch(name):
        raise InvalidOption(
            "queue",
            "must be 1-64 letters, digits, '_', '.' or '-', beginning with a letter or digit; before it there may be "
            "such a word in braces, the tag",
        )
    return name


def check_job_id(job_id: str) -> str:
    """Return `job_id`, or raise `InvalidOption`."""
    if not isinstance(job_id, str):
        raise InvalidOption("id", f"must be text, like job.id, not {type(job_id).__name__}")
    if not _JOB_ID.fullmatch(job_id):
        raise InvalidOption(
            "id", "must be 1-128 letters, digits, '_', '.', ':', '@' or '-', beginning with a letter or digit"
        )
    return job_id


def check_group_id(group: str, field: str = "group") -> str:
    """Return the id of a group, a batch or a deduplication, or raise `InvalidOption`: it becomes part of a key."""
    if not isinstance(group, str) or not _JOB_ID.fullmatch(group):
        raise InvalidOption(
            field, "must be 1-128 letters, digits, '_', '.', ':', '@' or '-', beginning with a letter or digit"
        )
    return group


class Keys:
    """The keys of one queue. The tag, in braces, keeps them all in one slot of a cluster.

    A queue `paint` has the tag `paint`; queues named `{studio}paint` and `{studio}print` share the tag `studio`, and
    so a slot: only then can one call change both, as flows do.
    """

    def __init__(self, queue: str) -> None:
        self.queue = check_queue_name(queue)
        has_tag = queue.startswith("{")
        self.tag = queue[1:].partition("}")[0] if has_tag else queue
        self.prefix = f"{PREFIX}:{queue}:" if has_tag else f"{PREFIX}:{{{queue}}}:"
        self.meta = self.prefix + "meta"
        self.none = self.prefix + "none"
        self.synced = self.prefix + "synced"
        self.marker = self.prefix + "marker"
        self.events = self.prefix + "events"
        self.outbox = self.prefix + "outbox"
        self.live = self.prefix + "live"
        self.control = self.prefix + "control"

    def preview(self, job_id: str) -> str:
        """The newest preview picture of a job (string, bytes of a WebP)."""
        return f"{self.prefix}preview:{job_id}"
