"""A queue of jobs: one file of this package for each side it is looked at from."""

from orchestrator.queue.admin import Admin
from orchestrator.queue.bulk import BulkAdding, BulkJob
from orchestrator.queue.children import Children
from orchestrator.queue.cleaning import Cleaning
from orchestrator.queue.connection import QueueConnection
from orchestrator.queue.groups import Groups
from orchestrator.queue.observing import Observing, QueueMeta
from orchestrator.queue.reading import MAX_EVENT_PAGE, MAX_PAGE, MAX_RECENT, Reading, Snapshot
from orchestrator.queue.schedules import Schedules
from orchestrator.queue.steering import MAX_REASON_BYTES, Steering
from orchestrator.queue.waiting import Waiting

__all__ = [
    "MAX_EVENT_PAGE",
    "MAX_PAGE",
    "MAX_REASON_BYTES",
    "MAX_RECENT",
    "BulkJob",
    "Queue",
    "QueueConnection",
    "QueueMeta",
    "Snapshot",
]


class Queue(
    BulkAdding,
    Steering,
    Schedules,
    Admin,
    Cleaning,
    Groups,
    Children,
    Observing,
    Waiting,
    Reading,
):
    """One queue. Safe to share between tasks; close it, or use it as an async context manager.

        async with Queue("paint", "redis://localhost") as queue:
            job = await queue.add("portrait", {"of": "a cat"}, JobOptions(priority=1, attempts=3))

    name: 1 to 64 letters, digits, '_', '.' and '-'.
    redis: a URL (`redis://`, `rediss://`, `unix://`, or `redis+cluster://` for a cluster), or a client of
        redis.asyncio, which stays open when the queue is closed.
    default_job_options: for what an add does not name.
    deadline_s: how long a call is sent again while Redis is away, in seconds.
    durable: adds are answered when the server's append-only file is synced; see "What is not" in the README.

    Every call may raise `StoreUnavailable` (Redis is full) or `OutcomeUnknown` (no answer within `deadline_s`).

    Source: BullMQ's Queue.
    """
