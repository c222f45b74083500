"""Calls of the duties and of the relay."""

from collections.abc import Sequence

from orchestrator.scripts.call import ScriptCaller


class UpkeepScripts(ScriptCaller):
    """What keeps a queue in order when nobody asks."""

    async def move_due_jobs(self, limit: int) -> int:
        """Move what is due; returns how many."""
        return int(await self._run("move_due_jobs", limit))

    async def move_stalled_to_wait(self, lease_ms: int, interval_ms: int, limit: int) -> int:
        """Recover what is stalled; returns how many."""
        return int(await self._run("move_stalled_to_wait", lease_ms, interval_ms, limit))

    async def remove_expired(self, limit: int) -> int:
        """Drop entries of records whose retention has ended; returns how many."""
        return int(await self._run("remove_expired", limit))

    async def forget_files(self, paths: Sequence[str]) -> None:
        """These folders of the storage are deleted."""
        if paths:
            await self._run("forget_files", *paths)

    async def create_group(self, group: str) -> None:
        """Make sure that the outbox and its consumer group exist."""
        await self._run("create_group", group)

    async def acknowledge(self, group: str, entry_ids: Sequence[str]) -> None:
        """Acknowledge outbox entries and delete them."""
        if entry_ids:
            await self._run("acknowledge", group, *entry_ids)
