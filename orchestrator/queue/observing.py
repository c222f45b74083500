"""Watching a queue as a whole: counters, workers, what monitors ask."""

from collections.abc import Mapping
from typing import NamedTuple

from orchestrator.errors import InvalidOption
from orchestrator.job import check_bool, check_int
from orchestrator.keys import QUEUES_KEY, new_token
from orchestrator.metrics import MAX_MINUTES, Metrics, Overview, QueueStats, check_kind, prometheus_text
from orchestrator.presence import WorkerInfo
from orchestrator.queue.reading import MAX_PAGE, Reading

LATEST_MINUTES = 60
MAX_QUEUES = 1000


class QueueMeta(NamedTuple):
    """How a queue is set. None = no limit.

    paused: nothing starts. concurrency: at most so many run at once. At most rate_max starts in any rate_ms.
    limited_until: ms since the epoch, on hold by hand. metrics: whether it counts.
    """

    paused: bool
    concurrency: int | None
    rate_max: int | None
    rate_ms: int | None
    limited_until: int | None
    metrics: bool


class Observing(Reading):
    """What a monitor does."""

    async def get_metrics(self, kind: str, start_minute: int | None = None, end_minute: int | None = None) -> Metrics:
        """A counter (`orchestrator.metrics.KINDS`) minute by minute, zeros included, up to `end_minute` and with it.

        Minutes are counted from the epoch; None = the present one, which counts at once, and an hour up to the end.
        Seven days are kept. Source: BullMQ's getMetrics.
        """
        check_kind(kind)
        end = 0 if end_minute is None else check_minute("end_minute", end_minute)
        start = 1 - LATEST_MINUTES if start_minute is None else check_minute("start_minute", start_minute)
        first, present, counts = await self.scripts.get_metrics(kind, start, end)
        end = end or present
        if end - first >= MAX_MINUTES:
            raise InvalidOption("start_minute", f"must be within {MAX_MINUTES} minutes of the end")
        while counts and first + len(counts) <= end:
            counts += (await self.scripts.get_metrics(kind, first + len(counts), end))[2]
        return Metrics(kind, first, counts)

    async def set_metrics(self, enabled: bool) -> None:
        """Count this queue's jobs (the default), or no longer."""
        check_bool("enabled", enabled)
        await self.scripts.set_metrics(new_token(), enabled=enabled)

    async def get_stats(self) -> QueueStats:
        """Whether it is paused, what is due, how many workers are there, how long jobs wait, all counters."""
        return await self.scripts.get_stats()

    async def get_meta(self) -> QueueMeta:
        """How the queue is set. Source: BullMQ's getMeta."""
        names = "paused", "metrics", "concurrency", "rate_max", "rate_ms", "limited_until"
        paused, metrics, *limits = await self.scripts.get_meta(*names)
        concurrency, rate_max, rate_ms, limited_until = (int(limit) if limit else None for limit in limits)
        return QueueMeta(paused != "", concurrency, rate_max, rate_ms, limited_until, metrics != "off")

    async def get_workers(self, start: int = 0, count: int = MAX_PAGE) -> list[WorkerInfo]:
        """A page of the workers heard of within the last 15 s."""
        check_int("start", start, 0, 2**53)
        check_int("count", count, 1, MAX_PAGE)
        workers, _ = await self.scripts.get_workers(start, count)
        return workers

    async def get_workers_count(self) -> int:
        """How many workers were heard of within the last 15 s."""
        _, total = await self.scripts.get_workers(0, 1)
        return total

    async def get_queue_names(self) -> list[str]:
        """All queues of this Redis that ever had a job, by name; at most 1,000."""

        async def scan() -> list[str]:
            return sorted([name.decode() async for name in self.client.sscan_iter(QUEUES_KEY, count=100)])

        names: list[str] = await self.scripts.retrying("SSCAN", scan)
        return names[:MAX_QUEUES]

    async def export_prometheus_metrics(self, global_labels: Mapping[str, str] | None = None) -> str:
        """This queue's numbers in Prometheus' text format; `global_labels` are set on every sample.

        Needs `prometheus-client` (the extra `server`). Source: BullMQ's exportPrometheusMetrics.
        """
        return prometheus_text([await self.get_overview()], global_labels).decode()

    async def get_overview(self) -> Overview:
        """What `export_prometheus_metrics` tells, as numbers: the counts of the states, and the stats."""
        return Overview(self.name, await self.get_counts(), await self.get_stats())


def check_minute(field: str, minute: int) -> int:
    """Return `minute`, or raise `InvalidOption`."""
    check_int(field, minute, 1, 2**40)
    return minute
