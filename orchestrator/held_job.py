"""What a processor of any kind sees of its job without asking anybody."""

from typing import Any, TypeVar

import msgspec

from orchestrator.job import Job

T = TypeVar("T")


class HeldJob:
    """A part of `ActiveJob` and `SyncJob`. job: as it was claimed."""

    job: Job

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def name(self) -> str:
        """What kind of job it is."""
        return self.job.name

    @property
    def run(self) -> int:
        """1, and one more for each manual retry."""
        return self.job.run

    @property
    def attempt(self) -> int:
        """Which attempt of the run this is, from 1."""
        return self.job.attempts_started

    @property
    def attempts_made(self) -> int:
        """Attempts of the run that have ended; stalls and hand-backs do not count."""
        return self.job.attempts_made

    @property
    def attempt_key(self) -> str:
        """Names this attempt among all of the job; its files go under `<id>/<attempt_key>/`."""
        return self.job.attempt_key

    @property
    def data(self) -> Any:
        """The data, as plain JSON values."""
        return msgspec.json.decode(self.job.data)

    def data_as(self, type_: type[T]) -> T:
        """The data, decoded and validated as `type_`."""
        return self.job.data_as(type_)
