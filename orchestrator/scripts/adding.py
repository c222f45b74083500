"""Calls that store jobs."""

from orchestrator.job import JobState
from orchestrator.replies import read_added
from orchestrator.scripts.call import ScriptCaller

OUTBOX_MAX = 100_000


class AddingScripts(ScriptCaller):
    """What adds jobs."""

    async def add_job(self, token: str, job_id: str, header: bytes, data: bytes) -> tuple[bool, JobState, int]:
        """Whether this call made the job, its state, and when it was created (ms)."""
        return read_added(await self._run("add_job", token, job_id, header, data, OUTBOX_MAX))

    async def fan_out(self, token: str, job_id: str, header: bytes, data: bytes) -> tuple[bool, JobState, int]:
        """The same for a delivery, which a full server takes too."""
        return read_added(await self._run("fan_out", token, job_id, header, data))
