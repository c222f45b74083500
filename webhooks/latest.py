"""Which progress messages need not be sent any more, because a newer one of the same job is on its way."""

import hashlib
from typing import Any, Protocol

from redis.exceptions import RedisError

from orchestrator.events import TERMINAL, id_key
from orchestrator.keys import Keys
from orchestrator.scripts import Client

PROGRESS = "generation.progress"
_CLOSING = frozenset({PROGRESS, *(f"generation.{name}" for name in TERMINAL)})


class Notice(Protocol):
    """What identifies a message here."""

    @property
    def queue(self) -> str: ...
    @property
    def job(self) -> str: ...
    @property
    def subscription(self) -> str: ...
    @property
    def event(self) -> str: ...
    @property
    def type(self) -> str: ...


class Latest:
    """The newest progress or terminal message of each job and subscription, as far as one was queued.

    Guaranteed: a progress message is left out only if a newer one, or the terminal one, has its own delivery job; the
    newest is never left out, and milestones and terminal messages never are. Not guaranteed: that every superseded one
    is left out. The note is written after the newer delivery was queued, and a lost or overwritten note only costs a
    message nobody needed, so it needs no script and may fail on a full server.
    """

    def __init__(self, client: Client, keys: Keys, keep_s: int) -> None:
        self._client = client
        self._prefix = f"{keys.prefix}latest:"
        self._keep_s = keep_s

    async def note(self, notice: Notice) -> None:
        """Remember a message that has just been queued."""
        if notice.type not in _CLOSING:
            return
        try:
            await self._client.set(self._key(notice), notice.event, ex=self._keep_s)
        except RedisError:
            return

    async def supersedes(self, notice: Notice) -> bool:
        """Whether a newer message makes this one needless."""
        if notice.type != PROGRESS:
            return False
        try:
            newest: Any = await self._client.get(self._key(notice))
        except RedisError:
            return False
        return newest is not None and id_key(newest.decode()) > id_key(notice.event)

    def _key(self, notice: Notice) -> str:
        name = "\0".join((notice.queue, notice.job, notice.subscription))
        return self._prefix + hashlib.sha256(name.encode()).hexdigest()[:32]
