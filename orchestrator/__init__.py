"""A job queue with BullMQ's semantics on Redis or Valkey, for work that takes seconds to minutes."""

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.deduplication import Deduplication
from orchestrator.errors import (
    BulkIncomplete,
    DelayedError,
    FlowRefused,
    InvalidOption,
    JobCanceled,
    JobEnded,
    JobFailed,
    JobNotFound,
    JobWasCanceled,
    KargahError,
    LeaseLost,
    OutcomeUnknown,
    QueueFull,
    RateLimitError,
    RetryLater,
    StoreUnavailable,
    TransientError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
    WrongState,
)
from orchestrator.events import Event
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.hub import Hub
from orchestrator.job import Job, JobOptions, JobState, KeepJobs
from orchestrator.parent import Parent
from orchestrator.processors import Sandbox, SyncJob
from orchestrator.queue import BulkJob, Queue
from orchestrator.schedule import JobScheduler, JobTemplate, RepeatOptions
from orchestrator.worker import ClaimedJob, Worker, WorkerEvent

__all__ = [
    "ActiveJob",
    "Backoff",
    "BulkIncomplete",
    "BulkJob",
    "ClaimedJob",
    "Deduplication",
    "DelayedError",
    "Event",
    "FlowJob",
    "FlowProducer",
    "FlowRefused",
    "Hub",
    "InvalidOption",
    "Job",
    "JobCanceled",
    "JobEnded",
    "JobFailed",
    "JobNotFound",
    "JobOptions",
    "JobScheduler",
    "JobState",
    "JobTemplate",
    "JobWasCanceled",
    "KargahError",
    "KeepJobs",
    "LeaseLost",
    "OutcomeUnknown",
    "Parent",
    "Queue",
    "QueueFull",
    "RateLimitError",
    "RepeatOptions",
    "RetryLater",
    "Sandbox",
    "StoreUnavailable",
    "SyncJob",
    "TransientError",
    "UnrecoverableError",
    "WaitingChildrenError",
    "WaitingError",
    "Worker",
    "WorkerEvent",
    "WrongState",
]
