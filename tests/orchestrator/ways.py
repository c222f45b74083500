"""By which way a worker claims: by calls of the usual kind, or by those it sends ahead of its sleep."""

from collections.abc import Callable
from typing import Any

from orchestrator.scripts import Claims
from orchestrator.worker import Worker


class Ways:
    """Watches by which way a worker claims; `after` sees, and may change, what the calls ahead bring."""

    def __init__(self, worker: Worker) -> None:
        self.ahead = 0
        self.is_ahead = False
        self.blocks_s: list[float] = []
        self.usual: list[tuple[str, int]] = []
        self.after: Callable[[Claims], Any] | None = None
        scripts = worker.queue.scripts
        self._run, self._ahead = scripts._run, scripts.move_to_active_when_woken
        scripts._run = self._watched  # type: ignore[assignment, method-assign]
        scripts.move_to_active_when_woken = self._watched_ahead  # type: ignore[method-assign]

    async def _watched(self, name: str, *args: Any) -> Any:
        if name in ("move_to_active", "move_to_finished", "extend_locks"):
            self.usual.append((name, args[5] if name != "extend_locks" else 0))
        return await self._run(name, *args)

    async def _watched_ahead(self, blocking: Any, block_s: float, *args: Any) -> Claims:
        self.ahead += 1
        self.blocks_s.append(block_s)
        self.is_ahead = True
        try:
            claims = await self._ahead(blocking, block_s, *args)
        finally:
            self.is_ahead = False
        if self.after is not None:
            await self.after(claims)
        return claims
