"""A job as a function without `await` sees it."""

import inspect
from typing import Any, Protocol, TypeVar

import msgspec

from orchestrator.active_job import ActiveJob
from orchestrator.job import CancelRequest, Job

T = TypeVar("T")

_OF_THE_WORKER = frozenset({"close"})


class Flag(Protocol):
    """Something that is set once, at some time. A `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether it is set."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is set, or for `timeout` seconds; whether it is."""
        ...


class SyncJob:
    """What a plain function gets: an `ActiveJob` whose methods return when they are done.

    cancel_requested: set soon after somebody canceled the job; stop, and raise `JobCanceled`.

    Once the attempt has to end (its time is over, the worker stops, the lease is lost), every method raises
    `LeaseLost`: for a thread, which cannot be ended from outside, that is how it learns to stop.
    """

    job: Job
    cancel_requested: Flag

    @property
    def cancel(self) -> CancelRequest | None:
        """Who canceled the job, and why."""
        raise NotImplementedError

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def name(self) -> str:
        """What kind of job it is."""
        return self.job.name

    @property
    def lease(self) -> str:
        """The token by which this attempt holds the job."""
        return self.job.lease or ""

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

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────

    def report_progress(self, value: Any) -> None:
        """Tell progress soon: the newest value wins. Never waits."""
        raise NotImplementedError

    def update_progress(self, value: Any) -> None:
        """Tell progress now, in order."""
        self._call("update_progress", value)

    def milestone(self, name: str, data: Any = None) -> None:
        """Tell that something was reached, after any pending progress."""
        self._call("milestone", name, data)

    def set_preview(self, picture: bytes, data: Any = None) -> None:
        """Show a preview picture (a few kB) and tell the milestone `preview_ready`."""
        self._call("set_preview", picture, data)

    def log(self, line: str) -> None:
        """Add a line to the job's own log."""
        self._call("log", line)

    def __getattr__(self, name: str) -> Any:
        """Whatever else an `ActiveJob` has, or can do and wait for."""
        if is_property(name):
            return self._get(name)
        if not is_awaited_method(name):
            raise AttributeError(f"a job has no {name!r} outside the event loop")
        return lambda *args, **kwargs: self._call(name, *args, **kwargs)

    def _get(self, name: str) -> Any:
        raise NotImplementedError

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def is_property(name: str) -> bool:
    """Whether this is something that an `ActiveJob` knows."""
    return not name.startswith("_") and isinstance(getattr(ActiveJob, name, None), property)


def is_awaited_method(name: str) -> bool:
    """Whether this is a method of `ActiveJob` that a processor may call and has to wait for."""
    method = getattr(ActiveJob, name, None)
    return not name.startswith("_") and name not in _OF_THE_WORKER and inspect.iscoroutinefunction(method)
