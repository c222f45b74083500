"""`Queue` without async. Written by orchestrator/sync_writer.py: do not edit."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator import children
from orchestrator.children import ChildPage, ChildState, DependenciesCount, JobNode
from orchestrator.events import Event
from orchestrator.group import Group, RateLimit, WhyWaiting
from orchestrator.job import Job, JobError, JobOptions, JobState
from orchestrator.metrics import Metrics, Overview, QueueStats
from orchestrator.presence import WorkerInfo
from orchestrator.queue import Queue as Asynchronous
from orchestrator.queue.bulk import SomeJob
from orchestrator.queue.observing import QueueMeta
from orchestrator.queue.reading import MAX_EVENT_PAGE, MAX_PAGE, Snapshot
from orchestrator.schedule import JobScheduler, JobTemplate, RepeatOptions
from orchestrator.scripts import DEADLINE_S, Page
from orchestrator.storage import Storage
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
        durable: bool = False,
    ) -> None:
        super().__init__(
            lambda: Asynchronous(
                name, redis, default_job_options=default_job_options, deadline_s=deadline_s, durable=durable
            )
        )
        self.name = name

    def add_bulk(self, jobs: Iterable[SomeJob], *, atomic: bool = True) -> list[Job]:
        """Store many jobs, each a `BulkJob` or (name, data, opts); each answers as `add` does, in the same order.

        All are stored, or none: up to 500 jobs and 8 MiB. With `atomic=False` any number, a chunk at a time; what
        stops it on the way is a `BulkIncomplete` that says which are stored. Every job is checked before any is sent:
        `InvalidOption` names it, as in `jobs[3].priority`. A parent must be there before; see `FlowProducer`.
        """
        return self._call(lambda opened: opened.add_bulk(jobs, atomic=atomic))

    def add(self, name: str, data: object = None, opts: JobOptions | None = None) -> Job:
        """Store a job and queue it. What `opts` does not name is as in the queue's `default_job_options`.

        The same id again (also after a lost answer) gives the job that is there, `duplicated` when another
        call made it; a deduplication id that is held gives its holder, `deduplicated`. Raises `InvalidOption` before
        anything is sent, `QueueFull` when `max_waiting` jobs are there already or the relay is far behind, and
        `FlowRefused` when its parent cannot take it.
        """
        return self._call(lambda opened: opened.add(name, data, opts))

    def fan_out(self, name: str, data: object, opts: JobOptions) -> Job:
        """Store a job that the service owes, like the delivery of an event: also when Redis is full.

        Otherwise like `add`, but for the queue's defaults, for deduplication, which would drop it, and for a parent,
        which could refuse it.
        """
        return self._call(lambda opened: opened.fan_out(name, data, opts))

    def cancel(self, job_id: str, by: str = "", reason: str = "", *, cancel_children: bool = True) -> Job:
        """Cancel a waiting job at once, or ask a running one to stop (it ends as canceled unless it completes first).

        What is unfinished below it is canceled with it, unless `cancel_children` is False: then it runs on for nobody.
        A large family is told in steps, parents first; should the caller die on the way, the duties go on. Like all of
        these calls it returns the job as the call left it, also one whose record ends with it. Raises `JobNotFound`,
        and `WrongState` when it has finished.
        """
        return self._call(lambda opened: opened.cancel(job_id, by, reason, cancel_children=cancel_children))

    def retry(self, job_id: str) -> Job:
        """Start a new run of a finished job, with fresh attempts. Raises `JobNotFound`, `WrongState`."""
        return self._call(lambda opened: opened.retry(job_id))

    def remove(self, job_id: str, *, remove_children: bool = True) -> bool:
        """Remove a job that does not run, with its history and files, and with all jobs below it.

        Raises `WrongState` while it, or one below it, runs, and `FlowRefused` with more than 500 jobs below it; then
        nothing is removed. With `remove_children=False` those run on for nobody. A parent waits for it no more.
        """
        return self._call(lambda opened: opened.remove(job_id, remove_children=remove_children))

    def promote(self, job_id: str) -> Job:
        """End a job's delay; its priority stays. Raises `JobNotFound`, `WrongState`."""
        return self._call(lambda opened: opened.promote(job_id))

    def change_priority(self, job_id: str, priority: int) -> Job:
        """Give an unfinished job another priority; a waiting one goes behind its new equals."""
        return self._call(lambda opened: opened.change_priority(job_id, priority))

    def change_delay(self, job_id: str, delay_ms: int) -> Job:
        """Give a delayed job another delay, from now. Raises `JobNotFound`, `WrongState`."""
        return self._call(lambda opened: opened.change_delay(job_id, delay_ms))

    def upsert_job_scheduler(
        self, scheduler_id: str, repeat: RepeatOptions, template: JobTemplate | None = None
    ) -> JobScheduler:
        """Make a schedule, or change the one of this id. Safe to call at every start of a program.

        With the timing it has (`every_ms`, `cron`, `tz`, `start_at`) it goes on as it was; a new template, limit or end
        counts from now on. With another timing it begins anew. A job of it that has not started is replaced when the
        template changed, and removed when the timing did. Without a template its jobs are named like it.

        Raises `InvalidOption` before anything is sent, `StoreUnavailable` when Redis is full, and `QueueFull` when an
        add of the job that is to be made `immediately` would be refused.
        """
        return self._call(lambda opened: opened.upsert_job_scheduler(scheduler_id, repeat, template))

    def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Remove a schedule, and its last job if that has not started; a running one goes on. Whether there was one."""
        return self._call(lambda opened: opened.remove_job_scheduler(scheduler_id))

    def get_job_scheduler(self, scheduler_id: str) -> JobScheduler | None:
        """The schedule as it is now; None when there is none of this id."""
        return self._call(lambda opened: opened.get_job_scheduler(scheduler_id))

    def get_job_schedulers(self, start: int = 0, count: int = 50) -> list[JobScheduler]:
        """A page of the schedules, next first; those without a next slot are the last."""
        return self._call(lambda opened: opened.get_job_schedulers(start, count))

    def get_job_schedulers_count(self) -> int:
        """How many schedules there are, finished ones too."""
        return self._call(lambda opened: opened.get_job_schedulers_count())

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

    def set_max_waiting(self, count: int) -> None:
        """Refuse adds (`QueueFull`) while so many jobs wait, also for a time or for children; 0 lifts the limit.

        It bounds what producers may pile up: retries, stalled jobs and those handed back always find room.
        """
        return self._call(lambda opened: opened.set_max_waiting(count))

    def rate_limit(self, duration_ms: int) -> None:
        """Nothing starts for so long, as when an outside API said "too many requests"; 0 lifts it."""
        return self._call(lambda opened: opened.rate_limit(duration_ms))

    def remove_rate_limit(self) -> None:
        """Lift what `rate_limit`, or a processor's `RateLimitError`, set. Source: BullMQ's removeRateLimitKey."""
        return self._call(lambda opened: opened.remove_rate_limit())

    def get_rate_limit_ttl(self) -> int:
        """For how many ms the limits on starts hold up the next one; 0 when they do not. A pause is none."""
        return self._call(lambda opened: opened.get_rate_limit_ttl())

    def get_global_concurrency(self) -> int:
        """How many jobs may run at once, over all workers; 0 = no limit."""
        return self._call(lambda opened: opened.get_global_concurrency())

    def get_global_rate_limit(self) -> tuple[int, int] | None:
        """The limit on starts: so many in any window of so many ms; None = no limit."""
        return self._call(lambda opened: opened.get_global_rate_limit())

    def is_maxed(self) -> bool:
        """Whether as many jobs run as the global concurrency allows."""
        return self._call(lambda opened: opened.is_maxed())

    def promote_jobs(self, count: int | None = None) -> int:
        """End the delay of those that are due soonest (None: of all that are delayed now); returns how many."""
        return self._call(lambda opened: opened.promote_jobs(count))

    def retry_jobs(
        self, state: JobState | str = JobState.FAILED, count: int | None = None, before: int | None = None
    ) -> int:
        """New runs of jobs that finished in `state`, the oldest first; returns how many.

        before: only of those that finished at this instant (ms) or earlier; None = now, so a job that fails again
        is not retried again.
        """
        return self._call(lambda opened: opened.retry_jobs(state, count, before))

    def drain(self, *, delayed: bool = False) -> int:
        """Remove the jobs that wait now, and with `delayed` those too; others stay. Returns how many.

        Source: BullMQ's drain.
        """
        return self._call(lambda opened: opened.drain(delayed=delayed))

    def clean(self, grace_ms: int, limit: int | None = None, state: JobState | str = JobState.COMPLETED) -> int:
        """Remove jobs of a state that are older than `grace_ms`, since their end or else since their add.

        At most `limit`; the oldest finished ones first, waiting ones as they would start. Returns how many. Running
        jobs are not cleaned: what stalled comes back by itself.
        """
        return self._call(lambda opened: opened.clean(grace_ms, limit, state))

    def obliterate(self, *, force: bool = False, storage: Storage | None = None) -> int:
        """Remove the queue: all jobs, schedules, limits, events, every key. Returns how many jobs it had.

        The queue is paused first and takes no jobs while this goes on. Jobs that run are a `WrongState`, unless
        `force`: then their workers lose them. Interrupted, it may be called again.

        Files of the jobs: with a `storage` they are deleted here; without, the key `sweep` names them to the duty that
        has the storage, and goes with the last of them. A worker that still serves the queue registers anew.
        """
        return self._call(lambda opened: opened.obliterate(force=force, storage=storage))

    def trim_events(self, count: int) -> int:
        """Keep only the newest entries of the queue's stream, of up to eight events each; returns how many went."""
        return self._call(lambda opened: opened.trim_events(count))

    def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """The id of the job that holds a deduplication id."""
        return self._call(lambda opened: opened.get_deduplication_job_id(deduplication_id))

    def remove_deduplication_key(self, deduplication_id: str, job_id: str | None = None) -> bool:
        """Let the next job of a deduplication id pass; with `job_id` only if that job holds it. Whether it was held."""
        return self._call(lambda opened: opened.remove_deduplication_key(deduplication_id, job_id))

    def set_group_weight(self, group: str, weight: float) -> None:
        """Give a group `weight` times the share of a group of weight 1. 0.01 to 1,000."""
        return self._call(lambda opened: opened.set_group_weight(group, weight))

    def set_group_concurrency(self, group: str, concurrency: int | None) -> None:
        """At most so many jobs of the group run at once; 0 = no limit, None = the queue's default for groups."""
        return self._call(lambda opened: opened.set_group_concurrency(group, concurrency))

    def set_group_rate_limit(self, group: str, limit: RateLimit | None) -> None:
        """At most so many starts of the group in any window; None = the queue's default for groups."""
        return self._call(lambda opened: opened.set_group_rate_limit(group, limit))

    def set_group_max_waiting(self, group: str, max_waiting: int | None) -> None:
        """Adds above so many waiting jobs of the group are refused; 0 = no limit, None = the queue's default."""
        return self._call(lambda opened: opened.set_group_max_waiting(group, max_waiting))

    def rate_limit_group(self, group: str, duration_ms: int) -> None:
        """Nothing of the group starts for so long; others go on. 0 lifts it."""
        return self._call(lambda opened: opened.rate_limit_group(group, duration_ms))

    def pause_group(self, group: str) -> None:
        """Let no more jobs of the group start; running ones go on, as do other groups."""
        return self._call(lambda opened: opened.pause_group(group))

    def resume_group(self, group: str) -> None:
        """Let jobs of the group start again."""
        return self._call(lambda opened: opened.resume_group(group))

    def set_group_defaults(
        self,
        *,
        concurrency: int | None = None,
        rate_limit: RateLimit | None = None,
        max_waiting: int | None = None,
        ageing_ms: int | None = None,
        fair_ungrouped: bool | None = None,
    ) -> None:
        """Say what holds of every group that says nothing else. None changes nothing, 0 lifts.

        rate_limit: lifted by `clear_group_rate_limit`.
        ageing_ms: each so many ms of waiting are worth one step of priority inside a group, so that nothing starves.
            A group takes it up when it next has no waiting jobs; there LIFO then counts only within a millisecond.
        fair_ungrouped: jobs without a group share as one group of the ring, instead of coming before all groups.
        """
        return self._call(
            lambda opened: opened.set_group_defaults(
                concurrency=concurrency,
                rate_limit=rate_limit,
                max_waiting=max_waiting,
                ageing_ms=ageing_ms,
                fair_ungrouped=fair_ungrouped,
            )
        )

    def clear_group_rate_limit(self) -> None:
        """Lift the default rate limit of groups."""
        return self._call(lambda opened: opened.clear_group_rate_limit())

    def get_groups(self, start: int = 0, count: int = 50) -> list[Group]:
        """A page of the groups: those whose turn comes first, then the held ones, then idle ones."""
        return self._call(lambda opened: opened.get_groups(start, count))

    def get_groups_count(self) -> int:
        """How many groups are known: with jobs, with settings of their own, or idle for less than an hour."""
        return self._call(lambda opened: opened.get_groups_count())

    def get_group(self, group: str) -> Group:
        """The group as it is now; one that was never used is idle."""
        return self._call(lambda opened: opened.get_group(group))

    def get_group_jobs(self, group: str, start: int = 0, count: int = 50) -> list[Job]:
        """A page of the group's waiting jobs, next first."""
        return self._call(lambda opened: opened.get_group_jobs(group, start, count))

    def why_waiting(self, job_id: str) -> WhyWaiting:
        """Why a job has not started, how many come before it, and about when it starts. Raises `JobNotFound`.

        Asked more than once a second about a job, it answers what it knew.
        """
        return self._call(lambda opened: opened.why_waiting(job_id))

    def get_children_values(self, job_id: str) -> dict[str, Any]:
        """The results of the completed children, by `<queue>:<id>`.

        A result over 64 KiB stays with its child, and is missing here once that is gone.
        """
        return self._call(lambda opened: opened.get_children_values(job_id))

    def get_ignored_children_failures(self, job_id: str) -> dict[str, JobError]:
        """Why children failed whose policy is "ignore" or "continue_parent", by `<queue>:<id>`."""
        return self._call(lambda opened: opened.get_ignored_children_failures(job_id))

    def get_dependencies(
        self,
        job_id: str,
        states: Iterable[ChildState] = tuple(ChildState),
        cursor: str | None = None,
        count: int = children.MAX_PAGE,
    ) -> ChildPage:
        """A page of the children in these states, about `count` of them; go on with its cursor until that is None."""
        return self._call(lambda opened: opened.get_dependencies(job_id, states, cursor, count))

    def get_dependencies_count(self, job_id: str) -> DependenciesCount:
        """How many children have come how far."""
        return self._call(lambda opened: opened.get_dependencies_count(job_id))

    def get_flow(self, job_id: str, depth: int = 10, max_children: int = 20) -> JobNode | None:
        """The job and the tree below it, as far as it is kept; None when there is no such job.

        At most `depth` levels, `max_children` of each job, and 500 jobs in all. Each level is read by itself, so a tree
        that changes meanwhile is not that of one instant.
        """
        return self._call(lambda opened: opened.get_flow(job_id, depth, max_children))

    def remove_unprocessed_children(self, job_id: str) -> int:
        """Remove the children that have not ended and do not run, with all below them; returns how many.

        One below which a job runs stays. A parent that waited only for these goes on.
        """
        return self._call(lambda opened: opened.remove_unprocessed_children(job_id))

    def remove_child_dependency(self, job_id: str) -> bool:
        """Let the job's parent wait for it no more; False when it did not. The job itself goes on."""
        return self._call(lambda opened: opened.remove_child_dependency(job_id))

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

    def wait_until_finished(self, job_id: str, timeout_s: float | None = None) -> Any:
        """The result of the job, once it completes; at once, when it has.

        Raises `JobFailed`, `JobWasCanceled`, `JobNotFound` (there is none, or it was removed unfinished or more than a
        minute ago), `TimeoutError`. A job that is not kept still gives its result for a minute.

        Source: BullMQ's Job.waitUntilFinished.
        """
        return self._call(lambda opened: opened.wait_until_finished(job_id, timeout_s))

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
        """A page of each state: waiting and delayed ones next first, finished ones newest first.

        Pages of together 200 jobs are of one instant. More are read in steps: of a job that moves meanwhile comes the
        newest that was seen of it, or nothing.
        """
        return self._call(lambda opened: opened.get_jobs(states, start, count))

    def get_recent(self, start: int = 0, count: int = 50) -> tuple[list[Job], str]:
        """A page over all states, unfinished ones first, then finished ones, newest first; and the newest event id."""
        return self._call(lambda opened: opened.get_recent(start, count))

    def get_page(self, start: int = 0, count: int = 50, state: JobState | None = None) -> Page:
        """A page of one state, or over all as `get_recent`, with what is needed to go on: see `Page.looked`."""
        return self._call(lambda opened: opened.get_page(start, count, state))

    def get_counts(self) -> dict[str, int]:
        """How many jobs are in each state. `prioritized` and `grouped` ones are waiting, too."""
        return self._call(lambda opened: opened.get_counts())

    def count(self) -> int:
        """How many jobs have yet to start: waiting and delayed ones, and those that wait for children."""
        return self._call(lambda opened: opened.count())

    def get_counts_per_priority(self, priorities: Sequence[int]) -> dict[int, int]:
        """How many jobs of each of these priorities (at most 500) wait."""
        return self._call(lambda opened: opened.get_counts_per_priority(priorities))

    def get_logs(self, job_id: str, start: int = 0, count: int = MAX_PAGE) -> list[str]:
        """Lines that the processor logged, oldest first."""
        return self._call(lambda opened: opened.get_logs(job_id, start, count))

    def clear_logs(self, job_id: str, keep: int = 0) -> None:
        """Forget the lines that the processor logged, but the newest `keep`. Source: BullMQ's clearJobLogs."""
        return self._call(lambda opened: opened.clear_logs(job_id, keep))

    def get_preview(self, job_id: str) -> bytes | None:
        """The newest preview picture of a running job."""
        return self._call(lambda opened: opened.get_preview(job_id))

    def events_after(self, last_id: str, count: int = MAX_EVENT_PAGE) -> list[Event] | None:
        """The queue's events after `last_id`, oldest first.

        None when that event is not there any more (trimmed, or of another life of the queue): then nothing can
        be said about what came between, and a new snapshot is due.
        """
        return self._call(lambda opened: opened.events_after(last_id, count))
