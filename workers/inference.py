"""An inference process that is there when it is needed: started, and started again whenever it dies."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from orchestrator.errors import TransientError
from orchestrator.log import get_logger
from workers.life import Life, Patience, RunningAttempt
from workers.protocol import Configure, Generate, Ready

log = get_logger("inference")

FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0  # between failed starts: 1, 2, 4, 8, 16, 30, 30 … seconds


class InferenceProcess:
    """Keeps one inference process alive from `start` to `stop`.

    A task of its own starts the process, and starts it again as soon as it dies; after starts that failed it pauses,
    longer each time. Trouble with the process is a `TransientError` for the attempt that meets it, and for none else.
    """

    def __init__(
        self,
        configuration: Configure,
        patience: Patience | None = None,
        command: Sequence[str] | None = None,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._configuration = configuration
        self._patience = patience or Patience()
        self._command = command or (sys.executable, "-P", "-m", "workers.child", str(os.getpid()))
        self._first_pause_s = first_pause_s
        self._keeper: asyncio.Task[None] | None = None
        self._coming: asyncio.Future[Life] | None = None  # the life that is ready, or the outcome of the next start
        self.ready: Ready | None = None  # what it said when it was ready last

    @property
    def pid(self) -> int | None:
        """The process that is ready now, if there is one."""
        coming = self._coming
        ready = coming is not None and coming.done() and not coming.cancelled() and coming.exception() is None
        return coming.result().pid if coming is not None and ready else None

    async def start(self) -> None:
        """Wait until a process is ready and free of earlier attempts. Raises `TransientError` if this start fails."""
        await self._get_ready()

    @asynccontextmanager
    async def attempt(self, request: Generate) -> AsyncIterator[RunningAttempt]:
        """Begin an attempt. One that is left before its end is told to stop, and is over before the next one begins."""
        life = await self._get_ready()
        attempt = life.begin_attempt(request)
        try:
            yield attempt
        finally:
            if not attempt.is_over:
                life.abandon(attempt)

    async def stop(self) -> None:
        """End the process, whatever it is doing."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = self._coming = None

    async def _get_ready(self) -> Life:
        if self._keeper is None:
            self._coming = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(), name="inference keeper")
        keeper = self._keeper
        while not keeper.done():
            assert self._coming is not None
            coming = self._coming
            either: list[asyncio.Future[Any]] = [coming, keeper]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                life = coming.result()
                if await life.settle():
                    return life
                await asyncio.sleep(0)  # let the keeper see that it died, too
        raise TransientError("the inference process is being stopped")

    async def _keep(self) -> None:
        failures = 0
        while True:
            try:
                await self._live()
                failures = 0
            except TransientError as problem:
                failures += 1
                log.error("inference.failed_to_start", failures=failures, problem=problem)
                self._announce(problem)
                await asyncio.sleep(min(self._first_pause_s * 2 ** (failures - 1), MAX_PAUSE_S))

    async def _live(self) -> None:
        """One life. Raises `TransientError` if it ends before it was ready."""
        life = await Life.begin(self._command, self._patience)
        try:
            self.ready = ready = await life.configure(self._configuration)
            log.info("inference.ready", pid=life.pid, device=ready.device, budget_bytes=ready.budget_bytes,
                     duration_ms=ready.start_ms)  # fmt: skip
            if ready.preload_error is not None:
                log.error("model.failed", model=self._configuration.preload, problem=ready.preload_error)
            assert self._coming is not None
            self._coming.set_result(life)
            await asyncio.wait([life.ended])
            log.error("inference.died", pid=life.pid, problem=life.end)
            self._coming = asyncio.get_running_loop().create_future()
        finally:
            await life.close()

    def _announce(self, problem: TransientError) -> None:
        """Tell those who wait for this start; those who come later wait for the next one."""
        assert self._coming is not None
        self._coming.set_exception(problem)
        self._coming.exception()  # there need not be anybody who waits
        self._coming = asyncio.get_running_loop().create_future()
