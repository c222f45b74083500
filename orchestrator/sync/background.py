"""The event loop of this process's synchronous calls: one thread, begun by the first call, ended with the process."""

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

T = TypeVar("T")
CLOSE_S = 5.0
HOLD_S = 1.0
"""How long a fork waits for the loop: only a caller that forks while it imports what the loop imports waits so long."""


class Closable(Protocol):
    """Something asynchronous that holds connections."""

    async def close(self) -> None:
        """Give them back."""


S = TypeVar("S", bound=Closable)


class _Loop(asyncio.SelectorEventLoop):
    def __del__(self) -> None:
        """A forked process only forgets its parent's loop: closing it would reach into what both share."""


class Background:
    """The loop and its thread, and what was opened on it."""

    def __init__(self) -> None:
        self.opening = threading.RLock()
        self._loop = _Loop()
        self._opened: set[Any] = set()
        self._go_on = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kargah-sync", daemon=True)
        self._thread.start()

    def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run a call on the loop, in the caller's context, and wait for it; interrupted, it is canceled."""

        async def made() -> T:
            return await call()

        future = asyncio.run_coroutine_threadsafe(made(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def open(self, make: Callable[[], S]) -> S:
        """Make something on the loop, which will be closed with it at the latest."""

        async def made() -> S:
            opened = make()
            self._opened.add(opened)
            return opened

        return self.call(made)

    def close(self, opened: Closable) -> None:
        """Close one thing, and wait for it."""
        self.call(lambda: self._close(opened))

    def close_soon(self, opened: Closable) -> None:
        """The same without waiting."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            asyncio.run_coroutine_threadsafe(self._close(opened), self._loop)

    def stop(self) -> None:
        """Close all that is open, then the loop."""
        with contextlib.suppress(Exception):
            self.call(self._close_all)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)

    def hold(self) -> None:
        """Stop the loop between two of its steps until `go_on`: what it holds within one, such as the lock of a module
        it imports, would stay held in a forked process for ever."""
        held, self._go_on = threading.Event(), threading.Event()

        def wait(go_on: threading.Event) -> None:
            held.set()
            go_on.wait()

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(wait, self._go_on)
            if threading.current_thread() is not self._thread:
                held.wait(HOLD_S)

    def go_on(self) -> None:
        """End `hold`."""
        self._go_on.set()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _close_all(self) -> None:
        async with asyncio.timeout(CLOSE_S):
            for opened in list(self._opened):
                await self._close(opened)

    async def _close(self, opened: Closable) -> None:
        if opened in self._opened:
            self._opened.discard(opened)
            await opened.close()


_lock = threading.Lock()
_present: Background | None = None
_of_parents: list[Background] = []
"""Loops of the processes we were forked from: kept untouched, since their sockets are shared."""


def background() -> Background:
    """This process's loop."""
    global _present
    with _lock:
        if _present is None:
            _present = Background()
        return _present


class Facade(Generic[S]):
    """What stands for something asynchronous; opened with its first call in each process, and again after `close`."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._home: Background | None = None
        self._opened: S | None = None
        self._release: weakref.finalize[..., Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        home = background()
        with home.opening:
            opened, self._opened = self._opened, None
            if self._release is not None:
                self._release.detach()
        if opened is not None and self._home is home:
            home.close(opened)

    def _call(self, call: Callable[[S], Awaitable[T]]) -> T:
        opened = self._open()
        return background().call(lambda: call(opened))

    def _ask(self, call: Callable[[S], T]) -> T:
        """The same for what does not wait by itself."""

        async def asked(opened: S) -> T:
            return call(opened)

        return self._call(asked)

    def _iterate(self, call: Callable[[S], AsyncIterator[T]]) -> Iterator[T]:
        values = self._ask(call)
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield self._call(lambda _: anext(values))

    def _open(self) -> S:
        home = background()
        if self._opened is not None and self._home is home:
            return self._opened
        with home.opening:
            if self._opened is None or self._home is not home:
                if self._release is not None:
                    self._release.detach()
                self._opened, self._home = home.open(self._make), home
                self._release = weakref.finalize(self, home.close_soon, self._opened)
                self._release.atexit = False
            return self._opened


def _hold() -> None:
    _lock.acquire()
    if _present is not None:
        _present.hold()


def _go_on() -> None:
    if _present is not None:
        _present.go_on()
    _lock.release()


def _forget() -> None:
    """In a forked process: its parent's thread does not run here."""
    global _present, _lock
    if _present is not None:
        _of_parents.append(_present)
    _present, _lock = None, threading.Lock()


def _stop() -> None:
    global _present
    ended, _present = _present, None
    if ended is not None:
        ended.stop()


os.register_at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_forget)
atexit.register(_stop)
