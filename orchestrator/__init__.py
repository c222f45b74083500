"""A job queue with BullMQ's semantics on Redis or Valkey, for work that takes seconds to minutes."""

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.errors import (
    FlowRefused,
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
    WaitingChildrenError,
    WrongState,
)
from orchestrator.events import Event
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.hub import Hub
from orchestrator.job import Job, JobOptions, JobState, KeepJobs, Parent
from orchestrator.queue import Queue
from orchestrator.worker import Worker

__all__ = [
    "ActiveJob",
    "Backoff",
    "Event",
    "FlowJob",
    "FlowProducer",
    "FlowRefused",
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
    "Parent",
    "Queue",
    "QueueFull",
    "StoreUnavailable",
    "TransientError",
    "UnrecoverableError",
    "WaitingChildrenError",
    "Worker",
    "WrongState",
]
