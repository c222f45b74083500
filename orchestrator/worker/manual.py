"""Claiming by hand: a program that asks for jobs and ends them itself, on a worker that keeps their leases."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from orchestrator.active_job import ActiveJob
from orchestrator.endings import Endings
from orchestrator.errors import DelayedError, LeaseLost, TransientError, WaitingChildrenError, WaitingError, WrongState
from orchestrator.job import JobState, check_int
from orchestrator.scripts import Claim, Claims, Finish, Scripts, end_tasks
from orchestrator.worker.claimer import LAST_CALLS_S, Claimer

ANSWER_S = 1.0
"""For how long a claim may take at least, also with a timeout of 0."""


class ClaimedJob(ActiveJob):
    """A job that was claimed by hand: as a processor has it, and to be ended by one of its `move_to_…`.

    Each of them returns the job's state, and raises `LeaseLost` when another worker may have the job. Its lease is
    renewed as long as the worker lives.
    """

    def __init__(self, claim: Claim, scripts: Scripts, progress_interval_ms: int, manual: "Manual") -> None:
        super().__init__(claim, scripts, progress_interval_ms)
        self.is_ending = False
        self._manual = manual

    async def move_to_completed(self, result: Any = None) -> JobState:
        """It is done."""
        return await self._manual.end(self, self._manual.endings.completed(self, result))

    async def move_to_failed(self, problem: BaseException | str) -> JobState:
        """This attempt failed; what follows depends on the error as it would for a processor that raised it."""
        error = TransientError(problem) if isinstance(problem, str) else problem
        return await self._manual.end(self, await self._manual.endings.raised(self, error))

    async def move_to_delayed(self, delay_ms: float) -> JobState:
        """It goes on later; no attempt is counted."""
        return await self._manual.end(self, self._manual.endings.stepped(self, DelayedError(delay_ms)))

    async def move_to_wait(self) -> JobState:
        """It goes back to its old place; no attempt is counted."""
        return await self._manual.end(self, self._manual.endings.stepped(self, WaitingError()))

    async def move_to_waiting_children(self) -> JobState:
        """It goes on when all its children have ended; no attempt is counted."""
        return await self._manual.end(self, self._manual.endings.stepped(self, WaitingChildrenError()))

    async def extend_lock(self, lease_ms: int) -> None:
        """Hold it for so long from now, as before work that keeps the worker from renewing. Raises `LeaseLost`."""
        check_int("lease_ms", lease_ms, 100, 86_400_000)
        (answer,) = await self._scripts.extend_locks(lease_ms, 0, [(self.id, self.lease)])
        if answer is False:
            raise LeaseLost(f"job {self.id} is not held any more")


class Held(NamedTuple):
    """A job in hand, and the slot it takes."""

    job: ClaimedJob
    slot: int
    manual: "Manual"

    def lose(self) -> None:
        """The lease is gone, and with it the slot's use."""
        self.job.lost.set()
        self.manual.forget(self.job)


class Manual:
    """Hands out claims, never more than `concurrency()` at once, and records their ends."""

    def __init__(
        self,
        claimer: Claimer,
        scripts: Scripts,
        endings: Endings,
        concurrency: Callable[[], int],
        progress_interval_ms: int,
        stopping: asyncio.Event,
    ) -> None:
        self.endings = endings
        self.held: dict[str, Held] = {}
        self._claimer = claimer
        self._scripts = scripts
        self._concurrency = concurrency
        self._interval_ms = progress_interval_ms
        self._stopping = stopping
        self._busy: set[int] = set()
        self._freed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def next_job(self, timeout_s: float | None) -> ClaimedJob | None:
        """The next job; None when there was none in time, or the worker stops."""
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + max(timeout_s, 0)
        try:
            async with asyncio.timeout_at(deadline):
                slot = await self._take_slot()
                try:
                    await self._claimer.looking.acquire()
                except BaseException:
                    self._free(slot)
                    raise
        except TimeoutError:
            return None
        try:
            return await self._look(slot, deadline)
        finally:
            self._claimer.looking.release()

    async def close(self) -> None:
        """Hand back what is in hand."""
        for held in self.held.values():
            if not held.job.is_ending:
                self._own(self._end(held, self.endings.returned(held.job)))
        if self._tasks:
            ended, _ = await asyncio.wait(self._tasks, timeout=LAST_CALLS_S + ANSWER_S)
            for task in ended:
                task.exception()
        await end_tasks(*self._tasks)  # Redis is away: what is not recorded now will be recovered by others

    async def end(self, job: ClaimedJob, finish: Finish) -> JobState:
        """Record how a job ended, also when the caller does not wait for it."""
        held = self.held.get(job.lease)
        if job.lost.is_set():
            raise LeaseLost(f"job {job.id} is not held any more")
        if held is None or job.is_ending:
            raise WrongState(f"job {job.id} has been ended by this program already")
        return await asyncio.shield(self._own(self._end(held, finish)))

    def look_again(self) -> None:
        """There may be more slots now."""
        self._freed.set()

    def forget(self, job: ClaimedJob) -> None:
        """A job is no longer in hand."""
        held = self.held.pop(job.lease, None)
        if held is not None:
            self._free(held.slot)

    # ── ending ───────────────────────────────────────────────────────────────────────────────────────

    async def _end(self, held: Held, finish: Finish) -> JobState:
        job = held.job
        job.is_ending = True
        try:
            await job.close()
            claims = await self._claimer.call(self._lane(held.slot), [finish])
        finally:
            self.forget(job)
            if finish.outcome == "returned":
                job.lost.set()  # to the program, which does not know of it
        if claims is None or claims.outcomes == ["LEASE_LOST"]:
            job.lost.set()
            raise LeaseLost(f"job {job.id} is not held any more; its end is not recorded")
        return JobState(claims.outcomes[0])

    # ── claiming ─────────────────────────────────────────────────────────────────────────────────────

    async def _look(self, slot: int, deadline: float | None) -> ClaimedJob | None:
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            is_deaf = False
            left_s = None if deadline is None else deadline - loop.time()
            if self._claimer.is_paused:
                sleep_ms = -1
            else:
                call = self._own(self._claimer.call(self._lane(slot), slots=1))
                claims = await self._answer(call, slot, None if left_s is None else max(left_s, ANSWER_S))
                if claims is None:  # its slot is freed once it is answered
                    return None
                if claims.claims:
                    return self._hold(slot, claims.claims[0])
                sleep_ms, is_deaf = claims.sleep_ms, claims.is_deaf
            if left_s is not None and left_s <= 0:
                break
            try:
                async with asyncio.timeout_at(deadline):
                    await self._claimer.sleep(sleep_ms, is_deaf=is_deaf)
            except TimeoutError:
                break
            except BaseException:
                self._free(slot)
                raise
        self._free(slot)
        return None

    async def _answer(self, call: "asyncio.Task[Claims | None]", slot: int, timeout_s: float | None) -> Claims | None:
        """What a claiming call brings. Nobody cuts it off: what it brings too late is handed back."""
        done: set[Any] = set()
        try:
            done, _ = await asyncio.wait([call], timeout=timeout_s)
        finally:
            if not done:
                self._own(self._give_back(call, slot))
        claims = None
        try:
            claims = call.result() if done else None
        finally:
            if done and claims is None:
                self._free(slot)
        return claims

    async def _give_back(self, call: "asyncio.Task[Claims | None]", slot: int) -> None:
        try:
            claims = await call
            for claim in claims.claims if claims else []:
                finish = Finish(claim.job.id, claim.lease, "returned", b"{}")
                await self._claimer.call(self._lane(slot), [finish])
        finally:
            self._free(slot)

    def _hold(self, slot: int, claim: Claim) -> ClaimedJob:
        job = ClaimedJob(claim, self._scripts, self._interval_ms, self)
        self.held[job.lease] = Held(job, slot, self)
        return job

    async def _take_slot(self) -> int:
        while True:
            self._freed.clear()
            for slot in range(self._concurrency()):
                if slot not in self._busy:
                    self._busy.add(slot)
                    return slot
            await self._freed.wait()

    def _free(self, slot: int) -> None:
        self._busy.discard(slot)
        self._freed.set()

    def _lane(self, slot: int) -> str:
        return f"{self._claimer.id}:{slot}"

    def _own(self, work: Any) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
