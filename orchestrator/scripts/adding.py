"""Calls that store jobs."""

from collections.abc import Sequence

from orchestrator.replies import Added, read_added
from orchestrator.scripts.call import ScriptCaller

OUTBOX_MAX = 100_000


class AddingScripts(ScriptCaller):
    """What adds jobs."""

    async def add_job(self, token: str, job_id: str, header: bytes, data: bytes) -> Added:
        """What became of it, and the job that is there now."""
        return read_added(await self._run_adding("add_job", token, job_id, header, data, OUTBOX_MAX))

    async def add_bulk(self, token: str, jobs: Sequence[tuple[str, bytes, bytes]]) -> list[Added]:
        """The same for many, (id, header, data) each: all are stored, or none."""
        parts = [part for job in jobs for part in job]
        return [read_added(reply) for reply in await self._run_adding("add_bulk", token, OUTBOX_MAX, *parts)]

    async def fan_out(self, token: str, job_id: str, header: bytes, data: bytes) -> Added:
        """The same for a delivery, which a full server takes too."""
        return read_added(await self._run("fan_out", token, job_id, header, data))
