"""Calls that steer jobs and queues from outside."""

from orchestrator.job import JobState
from orchestrator.scripts.call import ScriptCaller


class SteeringScripts(ScriptCaller):
    """What an operator or a producer changes."""

    async def cancel_job(self, token: str, job_id: str, cancel: bytes, *, whole: bool = True) -> JobState:
        """Cancel, or ask the worker to; `whole`: with all below it."""
        return JobState((await self._run("cancel_job", token, job_id, cancel, int(whole))).decode())

    async def reprocess_job(self, token: str, job_id: str) -> JobState:
        """Start a new run of a finished job."""
        return JobState((await self._run("reprocess_job", token, job_id)).decode())

    async def remove_job(self, token: str, job_id: str, *, whole: bool = True) -> bool:
        """Remove a job that does not run; `whole`: with all below it."""
        return bool(await self._run("remove_job", token, job_id, int(whole)))

    async def promote(self, token: str, job_id: str) -> JobState:
        """End a job's delay."""
        return JobState((await self._run("promote", token, job_id)).decode())

    async def change_priority(self, token: str, job_id: str, priority: int) -> JobState:
        """Give a job another priority."""
        return JobState((await self._run("change_priority", token, job_id, priority)).decode())

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
    ) -> None:
        """Change what is not None; 0 lifts a limit. `rate` = (starts, window in ms)."""
        rate_max, rate_ms = ("", "") if rate is None else rate
        concurrency_text = "" if concurrency is None else concurrency
        await self._run(
            "set_limits", token, concurrency_text, rate_max, rate_ms, "" if limited_ms is None else limited_ms
        )
