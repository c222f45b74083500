"""The lanes of a worker: each does one thing after the other, and their number may change at any time."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from orchestrator.scripts import end_tasks


class Lanes:
    """Keeps `concurrency()` lanes going. `work(number)` is what a lane does, until `is_surplus(number)`."""

    def __init__(self, work: Callable[[int], Awaitable[None]], concurrency: Callable[[], int]) -> None:
        self._work = work
        self._concurrency = concurrency
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._leaving: set[int] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._tasks)

    def open(self) -> None:
        """Open as many as are missing."""
        while len(self._tasks) - len(self._leaving) < self._concurrency():
            number = next(number for number in itertools.count() if number not in self._tasks)
            self._tasks[number] = asyncio.create_task(self._lane(number))
        self._changed.set()

    def is_surplus(self, number: int) -> bool:
        """Whether a lane is one too many; from the answer on it counts as gone."""
        if len(self._tasks) - len(self._leaving) > self._concurrency():
            self._leaving.add(number)
        return number in self._leaving

    async def until_one_fails(self) -> None:
        """Until all lanes have ended, or one failed."""
        while self._tasks:
            self._changed.clear()
            changed = asyncio.create_task(self._changed.wait())
            await asyncio.wait([*self._tasks.values(), changed], return_when=asyncio.FIRST_COMPLETED)
            await end_tasks(changed)
            for number, lane in tuple(self._tasks.items()):
                if lane.done() and (lane.cancelled() or lane.exception() is not None):
                    return
                if lane.done():
                    del self._tasks[number]
                    self._leaving.discard(number)

    async def cut_off(self) -> None:
        """End all lanes, whatever they do."""
        await end_tasks(*self._tasks.values())

    def raise_failure(self) -> None:
        """Raise what a lane failed with, once all have ended."""
        for lane in self._tasks.values():
            if not lane.cancelled() and (failure := lane.exception()) is not None:
                raise failure

    async def _lane(self, number: int) -> None:
        await self._work(number)
