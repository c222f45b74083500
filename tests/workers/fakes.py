"""A job in a processor's hands whose reports are kept in a list instead of sent to Redis."""

from typing import Any

import msgspec

from orchestrator.active_job import ActiveJob
from orchestrator.errors import LeaseLost
from orchestrator.generation import Generation
from orchestrator.job import CancelRequest, Header, Job, JobError, JobState
from orchestrator.scripts import Claim, Report, Scripts


class RecordingScripts(Scripts):
    """Takes reports as Redis would, and may say that the lease is gone."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, Any]] = []
        self.previews: list[bytes] = []
        self.is_lost = False

    async def update_progress(self, job_id: str, lease: str, report: Report) -> CancelRequest | None:
        if self.is_lost:
            raise LeaseLost(f"job {job_id} is not held any more")
        self.reports.append((report.name or "progress", msgspec.json.decode(report.content)))
        if report.preview:
            self.previews.append(report.preview)
        return None


class RecordedJob(ActiveJob):
    """An active job whose every progress report is kept."""

    def __init__(self, generation: Generation, *, error: JobError | None = None, lease: str = "lease.1") -> None:
        job = Job(
            queue="generations",
            id="job-1",
            header=Header(name="generation", attempts=3),
            data=msgspec.Raw(msgspec.json.encode(generation)),
            state=JobState.ACTIVE,
            created_at=0,
            lease=lease,
            error=error,
        )
        self.scripts = RecordingScripts()
        super().__init__(Claim(job, lease), self.scripts, progress_interval_ms=0)
        self.all_progress: list[dict[str, Any]] = []

    def report_progress(self, value: Any) -> None:
        self.all_progress.append(msgspec.to_builtins(value))
        super().report_progress(value)

    @property
    def milestones(self) -> list[str]:
        return [name for name, _ in self.scripts.reports if name not in ("progress", "preview_ready")]

    def data_of(self, name: str) -> list[Any]:
        return [data for reported, data in self.scripts.reports if reported == name]

    def ask(self) -> None:
        self.ask_to_stop(CancelRequest("somebody", "changed my mind"))
