"""Plain functions, each call in a thread of its own."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from orchestrator.active_job import MAX_REPORT_BYTES, ActiveJob
from orchestrator.errors import JobCanceled, LeaseLost, TransientError
from orchestrator.job import CancelRequest, encode_json
from orchestrator.processors.not_stopped import NotStopped
from orchestrator.processors.view import Flag, SyncJob

LAST_WORD_S = 0.5
"""How long the thread of a canceled job, which had its grace, may take to notice that nothing it says is heard."""
LOOK_S = 1.0


class Threads:
    """Runs a plain function in threads, one for each job in hand: so the worker's concurrency is their bound.

    A thread cannot be ended from outside. When an attempt has to end and its thread does not, the attempt is over all
    the same (`NotStopped`): what becomes of the job is recorded in time, what the thread still says is refused, and
    its slot stays taken until it ends by itself. So there are never more threads than slots. They are daemons: the
    interpreter's exit does not wait for them.
    """

    has_own_process = False

    def __init__(self, function: Callable[[SyncJob], Any]) -> None:
        self._function = function
        self._idle: list[_Thread] = []
        self._is_stopped = False

    async def start(self) -> None:
        pass

    async def __call__(self, job: ActiveJob) -> Any:
        loop = asyncio.get_running_loop()
        view = ThreadJob(job, loop)
        ended: asyncio.Future[Any] = loop.create_future()
        thread = self._idle.pop() if self._idle else _Thread()
        ended.add_done_callback(lambda _: thread.end() if self._is_stopped else self._idle.append(thread))
        context = contextvars.copy_context()
        thread.begin(lambda: context.run(self._function, view), loop, ended)
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:
            await self._stop(job, view, ended)
            if ended.exception() is not None and not isinstance(ended.exception(), JobCanceled):
                raise
        result = ended.result()
        return await result if inspect.isawaitable(result) else result

    async def stop(self) -> None:
        self._is_stopped = True
        while self._idle:
            self._idle.pop().end()

    async def _stop(self, job: ActiveJob, view: "ThreadJob", ended: asyncio.Future[Any]) -> None:
        """Let the thread notice; who cancels once more has waited long enough."""
        view.halt()
        had_its_grace = job.cancel_requested.is_set() or job.lost.is_set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ended], timeout=LAST_WORD_S if had_its_grace else None)
        if not ended.done():
            ended.add_done_callback(lambda _: ended.exception())  # nobody will ask for it
            raise NotStopped(ended) from None


class ThreadJob(SyncJob):
    """A job in a thread: what it does is done by the event loop."""

    def __init__(self, active: ActiveJob, loop: asyncio.AbstractEventLoop) -> None:
        self.job = active.job
        self.cancel_requested: Flag = _LoopFlag(active.cancel_requested, loop)
        self._active = active
        self._loop = loop
        self._is_halted = False

    @property
    def cancel(self) -> CancelRequest | None:
        return self._active.cancel

    def report_progress(self, value: Any) -> None:
        self._check()
        checked = msgspec.Raw(encode_json("progress", value, MAX_REPORT_BYTES))
        self._loop.call_soon_threadsafe(self._active.report_progress, checked)

    def halt(self) -> None:
        """The attempt has to end: nothing is heard any more."""
        self._is_halted = True

    def _get(self, name: str) -> Any:
        return getattr(self._active, name)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return _wait(self._loop, getattr(self._active, method)(*args, **kwargs), self._check)

    def _check(self) -> None:
        if self._is_halted or self._active.lost.is_set():
            raise LeaseLost(f"the attempt of job {self.id} has to end")


class _LoopFlag:
    """An event of the loop, seen from a thread."""

    def __init__(self, event: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        self._event = event
        self._loop = loop

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        async def until_set() -> None:
            try:
                async with asyncio.timeout(timeout):
                    await self._event.wait()
            except TimeoutError:
                pass

        _wait(self._loop, until_set(), lambda: None)
        return self._event.is_set()


class _Thread:
    """A thread that waits for things to do."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]] | None]
        self._tasks = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="kargah processor").start()

    def begin(self, task: Callable[[], Any], loop: asyncio.AbstractEventLoop, ended: asyncio.Future[Any]) -> None:
        self._tasks.put((task, loop, ended))

    def end(self) -> None:
        self._tasks.put(None)

    def _work(self) -> None:
        while (given := self._tasks.get()) is not None:
            task, loop, ended = given
            try:
                deliver, value = ended.set_result, task()
            except Exception as problem:
                deliver, value = ended.set_exception, _for_a_future(problem)
            except BaseException as problem:  # sys.exit() ends the attempt, not the worker
                deliver, value = ended.set_exception, TransientError(f"the processor raised {problem!r}")
            try:
                loop.call_soon_threadsafe(deliver, value)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            del task, loop, ended, given, deliver, value


def _for_a_future(problem: Exception) -> Exception:
    return TransientError(repr(problem)) if isinstance(problem, StopIteration) else problem


def _wait(loop: asyncio.AbstractEventLoop, work: Any, check: Callable[[], None]) -> Any:
    """Wait in a thread for work of the loop, which may be closed meanwhile."""
    try:
        future = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:
        work.close()
        raise LeaseLost("the worker has stopped") from None
    while True:
        try:
            return future.result(LOOK_S)
        except concurrent.futures.TimeoutError:
            if future.done():
                return future.result()
            check()
            if loop.is_closed():
                raise LeaseLost("the worker has stopped") from None
