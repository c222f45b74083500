"""`Queue` without async. Written by orchestrator/sync_writer.py: do not edit."""

from collections.abc import Mapping, Sequence

from orchestrator.events import Event
from orchestrator.job import Job, JobOptions, JobState
from orchestrator.metrics import Metrics, Overview, QueueStats
from orchestrator.presence import WorkerInfo
from orchestrator.queue import Queue as Asynchronous
from orchestrator.queue.observing import QueueMeta
from orchestrator.queue.reading import MAX_EVENT_PAGE, MAX_PAGE, Snapshot
from orchestrator.scripts import DEADLINE_S
from orchestrator.sync.background import Facade


class Queue(Facade[Asynchronous]):
    """`orchestrator.queue.Queue` whose methods wait for their answer, in any thread."""

    def __init__(
        self,
        name: str,
        redis: str = "redis://localhost:6379",
        *,
        default_job_options: JobOptions | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        super().__init__(
            lambda: Asynchronous(name, redis, default_job_options=default_job_options, deadline_s=deadline_s)
        )
        self.name = name

    def add(self, name: str, data: object = None, opts: JobOptions | None = None) -> Job:
        """Store a job and queue it.

        The same id again (also after a lost answer) gives the job that is there, `duplicated` when another
        call made it. Raises `InvalidOption` before anything is sent, `QueueFull` when the relay is far behind.
        """
        return self._call(lambda opened: opened.add(name, data, opts))

    def fan_out(self, name: str, data: object, opts: JobOptions) -> Job:
        """Store a job that the service owes, like the delivery of an event: also when Redis is full.

        Otherwise like `add`.
        """
        return self._call(lambda opened: opened.fan_out(name, data, opts))

    def cancel(self, job_id: str, by: str = "", reason: str = "") -> Job:
        """Cancel a waiting job at once, or ask a running one to stop (it ends as canceled unless it completes first).

        Raises `JobNotFound`, and `WrongState` when it has finished.
        """
        return self._call(lambda opened: opened.cancel(job_id, by, reason))

    def retry(self, job_id: str) -> Job:
        """Start a new run of a finished job, with fresh attempts. Raises `JobNotFound`, `WrongState`."""
        return self._call(lambda opened: opened.retry(job_id))

    def remove(self, job_id: str) -> bool:
        """Remove a job that does not run, with its history and files. Raises `WrongState` while it runs."""
        return self._call(lambda opened: opened.remove(job_id))

    def promote(self, job_id: str) -> Job:
        """End a job's delay; its priority stays. Raises `JobNotFound`, `WrongState`."""
        return self._call(lambda opened: opened.promote(job_id))

    def change_priority(self, job_id: str, priority: int) -> Job:
        """Give an unfinished job another priority; a waiting one goes behind its new equals."""
        return self._call(lambda opened: opened.change_priority(job_id, priority))

    def pause(self) -> None:
        """Let no more jobs start, on any worker; running ones go on."""
        return self._call(lambda opened: opened.pause())

    def resume(self) -> None:
        """Let jobs start again."""
        return self._call(lambda opened: opened.resume())

    def is_paused(self) -> bool:
        """Whether the queue is paused."""
        return self._call(lambda opened: opened.is_paused())

    def set_global_concurrency(self, concurrency: int) -> None:
        """At most so many jobs run at once, over all workers; 0 lifts the limit."""
        return self._call(lambda opened: opened.set_global_concurrency(concurrency))

    def set_global_rate_limit(self, max_starts: int, duration_ms: int) -> None:
        """At most so many starts in any window of `duration_ms`; 0 lifts the limit."""
        return self._call(lambda opened: opened.set_global_rate_limit(max_starts, duration_ms))

    def rate_limit(self, duration_ms: int) -> None:
        """Nothing starts for so long, as when an outside API said "too many requests"; 0 lifts it."""
        return self._call(lambda opened: opened.rate_limit(duration_ms))

    def get_metrics(self, kind: str, start_minute: int | None = None, end_minute: int | None = None) -> Metrics:
        """A counter (`orchestrator.metrics.KINDS`) minute by minute, zeros included, up to `end_minute` and with it.

        Minutes are counted from the epoch; None = the present one, which counts at once, and an hour up to the end.
        Seven days are kept. Source: BullMQ's getMetrics.
        """
        return self._call(lambda opened: opened.get_metrics(kind, start_minute, end_minute))

    def set_metrics(self, enabled: bool) -> None:
        """Count this queue's jobs (the default), or no longer."""
        return self._call(lambda opened: opened.set_metrics(enabled))

    def get_stats(self) -> QueueStats:
        """Whether it is paused, what is due, how many workers are there, how long jobs wait, all counters."""
        return self._call(lambda opened: opened.get_stats())

    def get_meta(self) -> QueueMeta:
        """How the queue is set. Source: BullMQ's getMeta."""
        return self._call(lambda opened: opened.get_meta())

    def get_workers(self, start: int = 0, count: int = MAX_PAGE) -> list[WorkerInfo]:
        """A page of the workers heard of within the last 15 s."""
        return self._call(lambda opened: opened.get_workers(start, count))

    def get_workers_count(self) -> int:
        """How many workers were heard of within the last 15 s."""
        return self._call(lambda opened: opened.get_workers_count())

    def get_queue_names(self) -> list[str]:
        """All queues of this Redis that ever had a job, by name; at most 1,000."""
        return self._call(lambda opened: opened.get_queue_names())

    def export_prometheus_metrics(self, global_labels: Mapping[str, str] | None = None) -> str:
        """This queue's numbers in Prometheus' text format; `global_labels` are set on every sample.

        Needs `prometheus-client` (the extra `server`). Source: BullMQ's exportPrometheusMetrics.
        """
        return self._call(lambda opened: opened.export_prometheus_metrics(global_labels))

    def get_overview(self) -> Overview:
        """What `export_prometheus_metrics` tells, as numbers: the counts of the states, and the stats."""
        return self._call(lambda opened: opened.get_overview())

    def get_job(self, job_id: str) -> Job | None:
        """The job as it is now; None when there is no such job."""
        return self._call(lambda opened: opened.get_job(job_id))

    def get_snapshot(self, job_id: str) -> Snapshot | None:
        """The job, its whole history and the queue's newest event id, as of one instant."""
        return self._call(lambda opened: opened.get_snapshot(job_id))

    def get_history(self, job_id: str, after: str | None = None) -> list[Event]:
        """The job's events after an event id, oldest first. Raises `JobNotFound`."""
        return self._call(lambda opened: opened.get_history(job_id, after))

    def get_jobs(self, states: Sequence[JobState], start: int = 0, count: int = 50) -> list[Job]:
        """A page of each state: waiting and delayed ones next first, finished ones newest first."""
        return self._call(lambda opened: opened.get_jobs(states, start, count))

    def get_recent(self, start: int = 0, count: int = 50) -> tuple[list[Job], str]:
        """A page over all states, unfinished ones first, then finished ones, newest first; and the newest event id."""
        return self._call(lambda opened: opened.get_recent(start, count))

    def get_counts(self) -> dict[str, int]:
        """How many jobs are in each state. `prioritized` ones are waiting ones with a priority."""
        return self._call(lambda opened: opened.get_counts())

    def get_logs(self, job_id: str, start: int = 0, count: int = MAX_PAGE) -> list[str]:
        """Lines that the processor logged, oldest first."""
        return self._call(lambda opened: opened.get_logs(job_id, start, count))

    def get_preview(self, job_id: str) -> bytes | None:
        """The newest preview picture of a running job."""
        return self._call(lambda opened: opened.get_preview(job_id))

    def events_after(self, last_id: str, count: int = MAX_EVENT_PAGE) -> list[Event] | None:
        """The queue's events after `last_id`, oldest first.

        None when that event is not there any more (trimmed, or of another life of the queue): then nothing can
        be said about what came between, and a new snapshot is due.
        """
        return self._call(lambda opened: opened.events_after(last_id, count))
