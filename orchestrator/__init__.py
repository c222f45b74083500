"""A job queue with BullMQ's semantics on Redis or Valkey, for work that takes seconds to minutes."""

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.errors import (
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
from orchestrator.processors import Sandbox, SyncJob
from orchestrator.queue import Queue
from orchestrator.worker import Worker

__all__ = [
    "ActiveJob",
    "Backoff",
    "Event",
    "Hub",
    "InvalidOption",
    "Job",
    "JobCanceled",
    "JobNotFound",
    "JobOptions",
    "JobState",
    "KargahError",
    "KeepJobs",
    "LeaseLost",
    "OutcomeUnknown",
    "Queue",
    "QueueFull",
    "Sandbox",
    "StoreUnavailable",
    "SyncJob",
    "TransientError",
    "UnrecoverableError",
    "Worker",
    "WrongState",
]
