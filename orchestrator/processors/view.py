"""A job as a function without `await` sees it."""

import inspect
from typing import Any, Protocol

from orchestrator.active_job import ActiveJob
from orchestrator.held_job import HeldJob
from orchestrator.job import CancelRequest

_OF_THE_WORKER = frozenset({"close"})


class Flag(Protocol):
    """Something that is set once, at some time. A `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether it is set."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is set, or for `timeout` seconds; whether it is."""
        ...


class SyncJob(HeldJob):
    """What a plain function gets: an `ActiveJob` whose methods return when they are done.

    cancel_requested: set soon after somebody canceled the job; stop, and raise `JobCanceled`.

    Once the attempt has to end (its time is over, the worker stops, the lease is lost), every method raises
    `LeaseLost`: for a thread, which cannot be ended from outside, that is how it learns to stop.
    """

    cancel_requested: Flag

    @property
    def cancel(self) -> CancelRequest | None:
        """Who canceled the job, and why."""
        raise NotImplementedError

    @property
    def lease(self) -> str:
        """The token by which this attempt holds the job."""
        return self.job.lease or ""

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
