"""Tells listeners in the same process what a worker does."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeAlias, get_args

from orchestrator.active_job import ActiveJob
from orchestrator.errors import InvalidOption
from orchestrator.job import JobError
from orchestrator.log import get_logger
from orchestrator.scripts import end_tasks

log = get_logger("worker")

What: TypeAlias = Literal[
    "active", "completed", "failed", "canceled", "delayed", "waiting", "waiting-children", "lost", "error"
]


class WorkerEvent(NamedTuple):
    """What a worker did: took a job (`active`), ended an attempt (the job's state then), or met trouble (`error`).

    what: also `lost`, where another worker may have the job by now. error: why an attempt failed, also one that is
    followed by another. problem: the exception of `error`. job: None there.
    """

    what: What
    job: ActiveJob | None = None
    error: JobError | None = None
    problem: Exception | None = None
    duration_ms: int = 0


Listener: TypeAlias = Callable[[WorkerEvent], "Awaitable[None] | None"]


class Listeners:
    """Functions, sync or async, to be called at each event of a kind. What they raise is logged, and hurts nobody."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, what: What, listener: Listener) -> None:
        """Call `listener` at each event of this kind."""
        if what not in get_args(What):
            raise InvalidOption("what", f"must be one of {', '.join(get_args(What))}")
        self._listeners.setdefault(what, []).append(listener)

    def tell(
        self,
        what: What,
        job: ActiveJob | None = None,
        error: JobError | None = None,
        problem: Exception | None = None,
        duration_ms: int = 0,
    ) -> None:
        """Call all whom it concerns, without waiting for those that are async."""
        for listener in self._listeners.get(what, ()):
            event = WorkerEvent(what, job, error, problem, duration_ms)
            try:
                result = listener(event)
            except Exception:
                log.exception("worker.listener_failed", what=event.what)
                continue
            if inspect.isawaitable(result):
                task = asyncio.create_task(self._wait(event, result))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def close(self, grace_s: float) -> None:
        """Let async ones end for `grace_s`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        await end_tasks(*self._tasks)

    async def _wait(self, event: WorkerEvent, result: Awaitable[None]) -> None:
        try:
            await result
        except Exception:
            log.exception("worker.listener_failed", what=event.what)
