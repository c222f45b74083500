"""What can be counted of a queue, and how Prometheus reads it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.errors import InvalidOption

if TYPE_CHECKING:
    from prometheus_client import Metric

MINUTE_MS = 60_000
MAX_MINUTES = 7 * 24 * 60
"""Counts of a minute are kept for seven days."""

KINDS = {
    "added": "Jobs that were added",
    "started": "Attempts that were started",
    "completed": "Runs that ended as completed",
    "failed": "Runs that ended as failed",
    "canceled": "Runs that ended as canceled",
    "retried": "Attempts that failed and are made again",
    "stalled": "Attempts whose worker was lost",
    "wait_ms": "Time that started attempts had waited for their start, summed up, in milliseconds",
    "run_ms": "Time that attempts took which ended, summed up, in milliseconds",
}
"""What is counted. Divided by `started`, `wait_ms` and `run_ms` are the means."""


class Metrics(NamedTuple):
    """A counter minute by minute; `counts[i]` is that of `start_minute + i` (minutes since the epoch)."""

    kind: str
    start_minute: int
    counts: list[int]

    @property
    def total(self) -> int:
        """All minutes together."""
        return sum(self.counts)


class QueueStats(NamedTuple):
    """What a monitor asks, beside the counts of the states.

    paused: nothing starts. workers: how many are there.
    due: delayed jobs whose time has come.
    oldest_waiting_ms: for how long the longest waiting job has waited; None while none waits.
    totals: the counters since the queue's first job, by kind.
    """

    paused: bool
    due: int
    workers: int
    oldest_waiting_ms: int | None
    totals: dict[str, int]


class Overview(NamedTuple):
    """A queue as of one moment."""

    queue: str
    counts: Mapping[str, int]
    stats: QueueStats

    @property
    def pending(self) -> int:
        """What workers are needed for: the number a fleet scales by."""
        return self.counts["waiting"] + self.counts["active"] + self.stats.due


def check_kind(kind: str) -> str:
    """Return `kind`, or raise `InvalidOption`."""
    if kind not in KINDS:
        raise InvalidOption("kind", f"must be one of {', '.join(KINDS)}")
    return kind


def prometheus_text(overviews: Iterable[Overview], labels: Mapping[str, str] | None = None, accept: str = "") -> bytes:
    """The queues in Prometheus' text format (or OpenMetrics, if `accept`, the request's header, asks for it).

    `labels` are set on every sample. Raises `InvalidOption` where `prometheus-client` is not installed.
    """
    encode, _ = _encoder(accept)
    return bytes(encode(_Collection(list(overviews), dict(labels or {}))))


def content_type(accept: str = "") -> str:
    """The media type of `prometheus_text`."""
    return str(_encoder(accept)[1])


class _Collection:
    """Looks like a registry to `generate_latest`."""

    def __init__(self, overviews: list[Overview], labels: dict[str, str]) -> None:
        self._overviews = overviews
        self._labels = labels

    def collect(self) -> Iterator["Metric"]:
        """All families, BullMQ's names first."""
        counted = {
            kind: [(overview, overview.stats.totals.get(kind, 0)) for overview in self._overviews] for kind in KINDS
        }
        yield self._states("bullmq_job_count", "Number of jobs in the queue by state")
        yield self._family("bullmq_job_completed", "Total number of completed jobs", counted["completed"], True)
        yield self._family("bullmq_job_failed", "Total number of failed jobs", counted["failed"], True)
        yield self._states("kargah_jobs", "Jobs by state")
        for kind, values in counted.items():
            if kind.endswith("_ms"):
                name, seconds = kind.removesuffix("_ms"), [(overview, ms / 1000) for overview, ms in values]
                help_text = KINDS[kind].removesuffix(", in milliseconds")
                yield self._family(f"kargah_job_{name}_seconds", help_text, seconds, True)
            else:
                yield self._family(f"kargah_jobs_{kind}", KINDS[kind], values, True)
        yield from self._gauges()

    def _gauges(self) -> Iterator["Metric"]:
        read = self._overviews
        yield self._family("kargah_jobs_pending", "Jobs that need a worker: waiting, active and due",
                           [(each, each.pending) for each in read])  # fmt: skip
        yield self._family("kargah_workers", "Workers that are there", [(each, each.stats.workers) for each in read])
        yield self._family("kargah_queue_paused", "Whether the queue is paused",
                           [(each, int(each.stats.paused)) for each in read])  # fmt: skip
        yield self._family("kargah_oldest_waiting_seconds", "For how long the longest waiting job has waited",
                           [(each, (each.stats.oldest_waiting_ms or 0) / 1000) for each in read])  # fmt: skip

    def _states(self, name: str, help_text: str) -> "Metric":
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(name, help_text, labels=["queue", "state", *self._labels])
        for overview in self._overviews:
            for state, count in overview.counts.items():
                family.add_metric([overview.queue, state, *self._labels.values()], count)
        return family

    def _family(
        self, name: str, help_text: str, values: Iterable[tuple[Overview, float]], is_counter: bool = False
    ) -> "Metric":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        family = (CounterMetricFamily if is_counter else GaugeMetricFamily)(
            name, help_text, labels=["queue", *self._labels]
        )
        for overview, value in values:
            family.add_metric([overview.queue, *self._labels.values()], value)
        return family


def _encoder(accept: str) -> tuple[Any, str]:
    try:
        from prometheus_client.exposition import choose_encoder
    except ImportError:
        raise InvalidOption("prometheus", "needs `prometheus-client`: pip install 'kargah[server]'") from None
    encode, media_type = choose_encoder(accept)
    return encode, media_type
