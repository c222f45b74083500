"""A worker's calls: what has ended and what may begin go together, in two lanes."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from orchestrator.scripts import Claim, Claims, Finish, end_tasks
from orchestrator.worker.claimer import Claimer
from orchestrator.worker.leases import Leases
from orchestrator.worker.running import JobRunner

LANES = 2
MOST_AT_ONCE = 32
"""Jobs to end, and to claim, in one call: about 2 ms of the server's time, in which it serves nobody else."""


class Lanes:
    """Two loops, each with at most one call in flight: it records what has ended, and claims for free slots.

    What ends while calls are under way goes with the next one. A call takes at most half of the slots, so that the
    server works on one half while this process runs the other. When the queue has nothing more, one lane looks out for
    work, and the other records.
    """

    def __init__(
        self,
        claimer: Claimer,
        runner: JobRunner,
        leases: Leases,
        stopping: asyncio.Event,
        concurrency: Callable[[], int],
    ) -> None:
        self._claimer = claimer
        self._runner = runner
        self._leases = leases
        self._stopping = stopping
        self._concurrency = concurrency
        self._tasks: list[asyncio.Task[None]] = []
        self._idle: deque[asyncio.Future[None]] = deque()
        self._asked = 0
        self._is_dry = False
        self._hints = 0
        self._sleep_ms, self._is_deaf = -1, False
        runner.on_change = self._wake

    async def work(self) -> None:
        """Until the worker stops and all is recorded. Raises what a lane, or a processor, brought down."""
        self._tasks = [asyncio.create_task(self._work(f"{self._claimer.id}:{number}")) for number in range(LANES)]
        failed, going_on = self._runner.failed, {*self._tasks}
        while going_on:
            done, _ = await asyncio.wait({*going_on, failed}, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                if not ended.cancelled():  # by `cut_off`
                    ended.result()
            going_on -= done

    def look_again(self) -> None:
        """There may be more slots, or more work, than a lane knows of."""
        self._hint()
        for _ in range(len(self._idle)):
            self._wake()

    async def cut_off(self) -> None:
        """End all lanes, whatever they do."""
        await end_tasks(*self._tasks)

    async def _work(self, lane: str) -> None:
        while await self._is_due():
            if self._runner.ended or not self._is_dry:
                await self._call(lane)
            else:
                await self._look_out(lane)
        self._wake()  # the other one may end, too

    async def _is_due(self) -> bool:
        """Wait until there is something to record, to ask for or to look out for; False when there will be nothing."""
        while not self._runner.ended:
            if self._stopping.is_set() and not self._runner.attempts:
                return False
            if self._may_ask() and not (self._is_dry and self._claimer.is_looking()):
                return True
            await self._until_woken()
        return True

    async def _call(self, lane: str) -> None:
        most = self._most()
        finishes, slots = self._runner.take_ended(most), self._free_slots(most)
        if self._runner.ended:
            self._wake()  # there is more than this call takes
        await self._take(lane, self._claimer.call(lane, finishes, slots), finishes, slots)

    async def _look_out(self, lane: str) -> None:
        """Sleep until there may be work. A worker that runs nothing, so that nothing holds its loop, is handed it."""
        is_idle = not (self._asked or self._runner.busy or self._runner.attempts)
        if is_idle and not self._is_deaf and self._claimer.may_call_ahead():
            await self._take(lane, self._claimer.call_ahead(lane, self._sleep_ms), [], 1)
        else:
            async with self._claimer.looking:
                await self._claimer.sleep(self._sleep_ms, is_deaf=self._is_deaf)
            self._hint()

    async def _take(self, lane: str, call: Awaitable[Claims | None], finishes: list[Finish], slots: int) -> None:
        """Wait for what a call brings, and begin that."""
        self._asked += slots
        hints = self._hints
        try:
            claims = await call
            self._runner.note_recorded(finishes, claims)
            if claims is not None:
                if slots:
                    self._is_dry = len(claims.claims) < slots and hints == self._hints
                    self._sleep_ms, self._is_deaf = claims.sleep_ms, claims.is_deaf
                await self._begin(lane, claims.claims)
        finally:
            self._asked -= slots

    def _may_ask(self) -> bool:
        return not (self._stopping.is_set() or self._claimer.is_paused) and self._free_slots(1) > 0

    def _most(self) -> int:
        """How many attempts a call records at most; for so many slots it asks, unless what comes next may change."""
        return MOST_AT_ONCE if self._claimer.is_choosy else min((self._concurrency() + 1) // 2, MOST_AT_ONCE)

    def _free_slots(self, most: int) -> int:
        """For how many slots a call may ask: what other calls have asked for may come any moment."""
        free = self._concurrency() - self._runner.busy - self._asked
        return max(0, min(free, 1 if self._claimer.is_choosy else most))

    def _hint(self) -> None:
        """There may be work, also where an answer that is on its way says that there is none."""
        self._is_dry = False
        self._hints += 1

    async def _begin(self, lane: str, claims: list[Claim]) -> None:
        if self._stopping.is_set() or self._claimer.is_paused:  # they came with the last call
            self._runner.give_back(claims)
        elif claims:
            self._runner.begin(await self._leases.still_held(claims, self._claimer.sent_at[lane]))

    def _wake(self) -> None:
        """Let an idle lane look whether it is due."""
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                waiting.set_result(None)
                return

    async def _until_woken(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._idle.append(waiting)
        await waiting
