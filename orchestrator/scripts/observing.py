"""Calls that monitor a queue, and the heartbeats of its workers."""

from orchestrator.metrics import QueueStats
from orchestrator.presence import ALIVE_MS, WorkerInfo, read_worker
from orchestrator.scripts.call import ScriptCaller


class ObservingScripts(ScriptCaller):
    """What counts, and who is there."""

    async def get_metrics(self, kind: str, start_minute: int, end_minute: int) -> tuple[int, int, list[int]]:
        """The first minute, the present one, and the counts from the first one on, 1,440 at most."""
        start, present, counts = await self._run("get_metrics", kind, start_minute, end_minute)
        return int(start), int(present), [int(count) for count in counts]

    async def get_stats(self) -> QueueStats:
        """What a monitor asks of a queue."""
        paused, due, workers, oldest_ms, flat = await self._run("get_stats", ALIVE_MS)
        totals = {kind.decode(): int(total) for kind, total in zip(flat[::2], flat[1::2], strict=True)}
        return QueueStats(bool(paused), due, workers, int(oldest_ms) if int(oldest_ms) >= 0 else None, totals)

    async def set_metrics(self, token: str, *, enabled: bool) -> None:
        """Switch the counters on or off."""
        await self._run("set_metrics", token, int(enabled))

    async def heartbeat(self, worker: str, record: bytes) -> int:
        """A worker is there (`record`), or leaves (empty); returns how many others were found gone."""
        return int(await self._run("heartbeat", worker, record, ALIVE_MS))

    async def get_workers(self, start: int, count: int) -> tuple[list[WorkerInfo], int]:
        """A page of the workers that are there, and how many there are."""
        total, flat = await self._run("get_workers", start, count, ALIVE_MS)
        return [read_worker(seen, text) for seen, text in zip(flat[::2], flat[1::2], strict=True)], total
