"""Processors of every kind: on the event loop, in threads, in processes of their own."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, cast

from orchestrator.active_job import ActiveJob
from orchestrator.errors import InvalidOption
from orchestrator.processors.not_stopped import NotStopped
from orchestrator.processors.sandbox import Sandbox, SandboxPool
from orchestrator.processors.threads import Threads
from orchestrator.processors.view import SyncJob

__all__ = [
    "NotStopped",
    "OnTheLoop",
    "Processor",
    "Runner",
    "Sandbox",
    "SandboxPool",
    "SyncJob",
    "Threads",
    "runner_of",
]

Processor: TypeAlias = Callable[[ActiveJob], Awaitable[Any]] | Callable[[SyncJob], Any] | Sandbox
"""What a worker may be given. An async function must not block; a plain one may; a `Sandbox` may even crash."""


class Runner(Protocol):
    """Runs a processor for one job after the other, or for several at once.

    has_own_process: whether the processor cannot hold up the worker's own process.
    """

    has_own_process: bool

    async def start(self) -> None:
        """Before the first job. Raises `InvalidOption` if there is no such processor."""
        ...

    async def __call__(self, job: ActiveJob) -> Any:
        """Run it. Canceled, it stops the processor, or raises `NotStopped`."""
        ...

    async def stop(self) -> None:
        """After the last job."""
        ...


class OnTheLoop:
    """Runs an async function where it was born."""

    has_own_process = False

    def __init__(self, processor: Callable[[ActiveJob], Awaitable[Any]]) -> None:
        self._processor = processor

    async def start(self) -> None:
        pass

    async def __call__(self, job: ActiveJob) -> Any:
        return await self._processor(job)

    async def stop(self) -> None:
        pass


def runner_of(processor: Processor, cancel_grace_ms: int) -> Runner:
    """How to run this processor: its kind decides."""
    if isinstance(processor, Sandbox):
        return SandboxPool(processor, cancel_grace_ms)
    if not callable(processor):
        raise InvalidOption("processor", "must be a function, or a Sandbox")
    if is_async(processor):
        return OnTheLoop(cast("Callable[[ActiveJob], Awaitable[Any]]", processor))
    return Threads(cast("Callable[[SyncJob], Any]", processor))


def is_async(processor: Any) -> bool:
    """Whether a call of it has to be awaited."""
    while hasattr(processor, "func"):  # functools.partial
        processor = processor.func
    return inspect.iscoroutinefunction(processor) or inspect.iscoroutinefunction(getattr(processor, "__call__", None))  # noqa: B004
