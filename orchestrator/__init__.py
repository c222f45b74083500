"""A job queue with BullMQ's semantics on Redis or Valkey, for work that takes seconds to minutes.

    from orchestrator import Queue, Worker

Three classes do the work: a `Queue` adds jobs, steers and tells of them, a `Worker` runs them, a `Hub` watches. A
`FlowProducer` adds trees of jobs.
`JobOptions` says what may be said about a job; what a processor raises (`ProcessorError`) says what becomes of it.
Without async: `orchestrator.sync`. Recipes: `orchestrator/RECIPES.md`.
"""

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.children import Child, ChildState, JobNode
from orchestrator.deduplication import Deduplication
from orchestrator.errors import (
    AttemptTimeout,
    BulkIncomplete,
    DelayedError,
    FlowRefused,
    GroupFull,
    InvalidOption,
    JobCanceled,
    JobEnded,
    JobFailed,
    JobNotFound,
    JobWasCanceled,
    KargahError,
    LayoutMismatch,
    LeaseLost,
    OutcomeUnknown,
    OutOfMemory,
    ProcessorError,
    QueueFull,
    RateLimitError,
    RetryLater,
    StepError,
    StoreUnavailable,
    TransientError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
    WrongState,
)
from orchestrator.events import Event
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.group import Batch, Group, GroupPlace, RateLimit, WhyWaiting
from orchestrator.hub import Hub, Lagged, Watch
from orchestrator.job import CancelRequest, Job, JobError, JobOptions, JobState, KeepJobs
from orchestrator.metrics import Metrics, QueueStats
from orchestrator.parent import Parent
from orchestrator.presence import WorkerInfo
from orchestrator.processors import Sandbox, SyncJob
from orchestrator.queue import BulkJob, Queue, QueueMeta, Snapshot
from orchestrator.schedule import JobScheduler, JobTemplate, RepeatOptions
from orchestrator.worker import ClaimedJob, Health, Worker, WorkerEvent

__all__ = [
    "ActiveJob",
    "AttemptTimeout",
    "Backoff",
    "Batch",
    "BulkIncomplete",
    "BulkJob",
    "CancelRequest",
    "Child",
    "ChildState",
    "ClaimedJob",
    "Deduplication",
    "DelayedError",
    "Event",
    "FlowJob",
    "FlowProducer",
    "FlowRefused",
    "Group",
    "GroupFull",
    "GroupPlace",
    "Health",
    "Hub",
    "InvalidOption",
    "Job",
    "JobCanceled",
    "JobEnded",
    "JobError",
    "JobFailed",
    "JobNode",
    "JobNotFound",
    "JobOptions",
    "JobScheduler",
    "JobState",
    "JobTemplate",
    "JobWasCanceled",
    "KargahError",
    "KeepJobs",
    "Lagged",
    "LayoutMismatch",
    "LeaseLost",
    "Metrics",
    "OutOfMemory",
    "OutcomeUnknown",
    "Parent",
    "ProcessorError",
    "Queue",
    "QueueFull",
    "QueueMeta",
    "QueueStats",
    "RateLimit",
    "RateLimitError",
    "RepeatOptions",
    "RetryLater",
    "Sandbox",
    "Snapshot",
    "StepError",
    "StoreUnavailable",
    "SyncJob",
    "TransientError",
    "UnrecoverableError",
    "WaitingChildrenError",
    "WaitingError",
    "Watch",
    "WhyWaiting",
    "Worker",
    "WorkerEvent",
    "WorkerInfo",
    "WrongState",
]
