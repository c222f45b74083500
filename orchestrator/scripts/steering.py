"""Calls that steer jobs and queues from outside."""

from orchestrator.job import Job
from orchestrator.replies import read_job
from orchestrator.scripts.call import ScriptCaller

CANCELED_AT_ONCE = 25
"""Fifty were seen to take 5 ms, and no script may take longer."""


class SteeringScripts(ScriptCaller):
    """What an operator or a producer changes."""

    async def cancel_job(self, token: str, job_id: str, cancel: bytes, *, whole: bool = True) -> Job:
        """Cancel, or ask the worker to; `whole`: with those below it, see `cancel_descendants`."""
        return read_job(self.keys.queue, await self._run("cancel_job", token, job_id, cancel, int(whole)))

    async def cancel_descendants(self, job_id: str, limit: int = CANCELED_AT_ONCE) -> int:
        """Cancel more of those below a canceled job; returns how many are left, 0 when all are told."""
        return int(await self._run("cancel_descendants", job_id, limit))

    async def reprocess_job(self, token: str, job_id: str) -> Job:
        """Start a new run of a finished job."""
        return read_job(self.keys.queue, await self._run("reprocess_job", token, job_id))

    async def remove_job(self, token: str, job_id: str, *, whole: bool = True) -> bool:
        """Remove a job that does not run; `whole`: with all below it."""
        return bool(await self._run("remove_job", token, job_id, int(whole)))

    async def promote(self, token: str, job_id: str) -> Job:
        """End a job's delay."""
        return read_job(self.keys.queue, await self._run("promote", token, job_id))

    async def change_priority(self, token: str, job_id: str, priority: int) -> Job:
        """Give a job another priority."""
        return read_job(self.keys.queue, await self._run("change_priority", token, job_id, priority))

    async def change_delay(self, token: str, job_id: str, delay_ms: int) -> Job:
        """Give a delayed job another delay, from now."""
        return read_job(self.keys.queue, await self._run("change_delay", token, job_id, delay_ms))

    async def pause(self, token: str, *, paused: bool) -> None:
        """Pause or resume the queue."""
        await self._run("pause", token, int(paused))

    async def set_limits(
        self,
        token: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, int] | None = None,
        limited_ms: int | None = None,
        max_waiting: int | None = None,
    ) -> None:
        """Change what is not None; 0 lifts a limit. `rate` = (starts, window in ms)."""
        rate_max, rate_ms = (None, None) if rate is None else rate
        limits = (concurrency, rate_max, rate_ms, limited_ms, max_waiting)
        await self._run("set_limits", token, *("" if limit is None else limit for limit in limits))
