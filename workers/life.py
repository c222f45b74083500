"""One life of an inference process, from its start to its end: frames in, frames out, and a watch on its silence."""

import asyncio
from collections.abc import Sequence

import msgspec

from orchestrator.child_process import ChildProcess
from orchestrator.errors import TransientError
from workers.protocol import (
    REPORTS,
    Alive,
    Answer,
    Cancel,
    Canceled,
    Configure,
    Done,
    Failed,
    Generate,
    Ready,
    Report,
    Unusable,
)


class Patience(msgspec.Struct, frozen=True):
    """How long the inference process may take for what, in seconds.

    silence_s: between two frames; its heartbeat alone beats each second.
    start_silence_s: the same until it is ready, while imports may keep the heartbeat from beating.
    load_s: until it is ready, and until a model is loaded, which may mean a download.
    step_s: until the first step, and from the last one to the picture: the model's pace is not known there.
    pace, least_s: between two steps, `pace` times the slowest step so far, and at least `least_s`.
    abandon_s: from the word to stop until it has stopped, when nobody waits for the attempt any more.
    """

    silence_s: float = 30.0
    start_silence_s: float = 300.0
    load_s: float = 1800.0
    step_s: float = 600.0
    pace: float = 20.0
    least_s: float = 60.0
    abandon_s: float = 5.0
    tick_s: float = 1.0

    def between_steps_s(self, slowest_ms: float) -> float:
        """How long the next step may take."""
        return max(self.least_s, self.pace * slowest_ms / 1000)


class Life(ChildProcess[Report]):
    """A running process. Its end, and whatever is wrong with it, is raised as `TransientError`."""

    what = "inference process"
    decoder = REPORTS

    def __init__(self, process: asyncio.subprocess.Process, patience: Patience) -> None:
        super().__init__(process)
        self._patience = patience
        self._heard = 0
        self._number = 0
        self._draining: asyncio.Task[None] | None = None

    @classmethod
    async def begin(cls, command: Sequence[str], patience: Patience) -> "Life":
        """Start the process."""
        return cls(await cls._spawn(command), patience)

    async def configure(self, configuration: Configure) -> Ready:
        """The first thing to do with it."""
        self.send(configuration)
        report = await self.next_report(self._patience.load_s, self._patience.start_silence_s)
        match report:
            case Ready():
                return report
            case Unusable():
                self.kill(f"cannot work here: {report.message}")
            case _:
                self.kill(f"began with {type(report).__name__}")
        await asyncio.wait([self.ended])
        raise self.end

    def begin_attempt(self, request: Generate) -> "RunningAttempt":
        """Send a request, under the next number."""
        self._number += 1
        self.send(msgspec.structs.replace(request, request=self._number))
        return RunningAttempt(self, self._number, self._patience)

    def abandon(self, attempt: "RunningAttempt") -> None:
        """Nobody waits for the attempt any more. It must stop all the same, before there is another one."""
        attempt.cancel()
        self._draining = asyncio.create_task(self._drain(attempt), name=f"drain inference process {self.pid}")

    async def settle(self) -> bool:
        """Wait until nothing of an abandoned attempt is left; whether the process is still there."""
        if self._draining is not None:
            await asyncio.wait([self._draining])
        return not self.ended.done()

    async def next_report(self, allowed_s: float, silence_s: float) -> Report:
        """The next report that is not a heartbeat. A process that is silent, or takes longer than allowed, is killed.

        The clock is not asked: ticks of our own are counted, so that a worker that was itself stopped for a while
        does not blame its child.
        """
        ticks = silent_ticks = 0
        while True:
            heard = self._heard
            try:
                async with asyncio.timeout(self._patience.tick_s):
                    report = await self._reports.get()
            except TimeoutError:
                ticks += 1
                silent_ticks = 0 if self._heard > heard else silent_ticks + 1
                if silent_ticks * self._patience.tick_s >= silence_s:
                    self.kill(f"gave no sign of life for {silence_s:g} s and was killed")
                elif ticks * self._patience.tick_s >= allowed_s:
                    self.kill(f"made no progress for {allowed_s:g} s and was killed")
                continue
            if report is None:
                self._reports.put_nowait(None)
                raise self.end
            return report

    async def close(self) -> None:
        """Let it go: it ends when its input does, or it is killed."""
        await super().close()
        if self._draining is not None:
            await asyncio.wait([self._draining])

    def _received(self, report: Report) -> None:
        self._heard += 1
        if not isinstance(report, Alive):
            super()._received(report)

    async def _drain(self, attempt: "RunningAttempt") -> None:
        try:
            async with asyncio.timeout(self._patience.abandon_s):
                while not attempt.is_over:
                    await attempt.next_answer(self._patience.abandon_s)
        except TimeoutError:
            self.kill(f"did not stop within {self._patience.abandon_s:g} s and was killed")
            await asyncio.wait([self.ended])
        except TransientError:
            pass


class RunningAttempt:
    """An attempt in the hands of the process."""

    def __init__(self, life: Life, number: int, patience: Patience) -> None:
        self._life = life
        self._number = number
        self.patience = patience
        self.is_over = False

    def cancel(self) -> None:
        """Ask it to stop at the next step; the answer is `Canceled`, or whatever end came first."""
        self._life.send(Cancel(self._number))

    async def next_answer(self, allowed_s: float) -> Answer:
        """The next answer, due within `allowed_s`. Raises `TransientError` if the process is gone, or had to go."""
        while True:
            report = await self._life.next_report(allowed_s, self.patience.silence_s)
            if isinstance(report, Ready | Alive | Unusable) or report.request != self._number:
                self._life.kill(f"answered out of turn ({type(report).__name__}) and was killed")
                continue
            self.is_over = isinstance(report, Done | Canceled | Failed)
            return report
