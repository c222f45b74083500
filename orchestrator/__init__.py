"""A job queue with BullMQ's semantics on Redis or Valkey, for work that takes seconds to minutes."""

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.deduplication import Deduplication
from orchestrator.errors import (
    BulkIncomplete,
    InvalidOption,
    JobCanceled,
    JobNotFound,
    KargahError,
    LeaseLost,
    OutcomeUnknown,
    QueueFull,
    StoreUnavailable,
    TransientError,
    UnrecoverableError,
    WrongState,
)
from orchestrator.events import Event
from orchestrator.hub import Hub
from orchestrator.job import Job, JobOptions, JobState, KeepJobs
from orchestrator.queue import BulkJob, Queue
from orchestrator.schedule import JobScheduler, JobTemplate, RepeatOptions
from orchestrator.worker import Worker

__all__ = [
    "ActiveJob",
    "Backoff",
    "BulkIncomplete",
    "BulkJob",
    "Deduplication",
    "Event",
    "Hub",
    "InvalidOption",
    "Job",
    "JobCanceled",
    "JobNotFound",
    "JobOptions",
    "JobScheduler",
    "JobState",
    "JobTemplate",
    "KargahError",
    "KeepJobs",
    "LeaseLost",
    "OutcomeUnknown",
    "Queue",
    "QueueFull",
    "RepeatOptions",
    "StoreUnavailable",
    "TransientError",
    "UnrecoverableError",
    "Worker",
    "WrongState",
]
