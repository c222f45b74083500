"""Calls that move or remove many jobs, a bounded number at a time."""

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.scripts.call import ScriptCaller


class Pass(NamedTuple):
    """What one call did: `passed` are the ids that were looked at, or kept; `until_at` is for the next call."""

    done: int
    passed: int
    until_at: str


class CleaningScripts(ScriptCaller):
    """What an operator does to many jobs."""

    async def promote_jobs(self, token: str, limit: int) -> int:
        """End the delays of those that are due soonest; returns how many."""
        return int(await self._run("promote_jobs", token, limit))

    async def retry_jobs(self, token: str, state: str, limit: int, until_at: str) -> Pass:
        """New runs of finished jobs, the oldest first; `passed`: how many were looked at."""
        return _pass(await self._run("retry_jobs", token, state, limit, until_at))

    async def drain(self, token: str, state: str, limit: int) -> int:
        """Remove waiting or delayed jobs; returns how many."""
        return int(await self._run("drain", token, state, limit))

    async def clean(self, token: str, state: str, start: int, limit: int, grace_ms: int, until_at: str) -> Pass:
        """Remove old jobs of a state; `passed`: how many were too young."""
        return _pass(await self._run("clean", token, state, start, limit, grace_ms, until_at))

    async def obliterate(self, epoch: str, *, force: bool, limit: int, closing_ms: int) -> int:
        """Close the queue and remove jobs in any state; returns how many."""
        return int(await self._run("obliterate", epoch, int(force), limit, closing_ms))

    async def forget_keys(self, epoch: str, names: Sequence[str]) -> int:
        """Delete keys of a closed queue without jobs; −1 when it is not that."""
        return int(await self._run("forget_keys", epoch, *names))

    async def trim_events(self, count: int) -> int:
        """Keep the newest events only; returns how many went."""
        return int(await self._run("trim_events", count))

    async def remove_deduplication_key(self, token: str, name: str, owner: str) -> bool:
        """Free a key that this job holds ("": that any job holds)."""
        return bool(await self._run("remove_deduplication_key", token, name, owner) == b"1")


def _pass(reply: Sequence[bytes]) -> Pass:
    done, passed, until_at = reply
    return Pass(int(done), int(passed), until_at.decode())
