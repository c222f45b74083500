"""Schedules: when a job is to be made again and again, and from what."""

import re
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from orchestrator.backoff import MAX_DELAY_MS
from orchestrator.errors import InvalidOption
from orchestrator.given import check_kind
from orchestrator.job import MAX_DATA_BYTES, Header, JobOptions, check_bool, check_int, encode_json
from orchestrator.slots import Cron

MIN_EVERY_MS = 100
SLOTS_AHEAD = 32
MAX_INSTANT = 7_258_118_400_000  # the year 2200

_SCHEDULER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,99}")
_OF_ONE_JOB = ("id", "delay_ms", "deduplication", "parent")
"""Options that say something about a single job, so that no template can have them."""


class Slots(NamedTuple):
    """Instants of a cron, all those after `known_to`, as many as fit; `is_last` = then none comes any more."""

    known_to: int
    slots: list[int]
    is_last: bool


class RepeatOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule makes a job. Either `every_ms` or `cron`.

    every_ms: a job every so many milliseconds, at least 100; the first at once, or at `start_at`.
    cron: see `orchestrator.slots.Cron`, also for what happens when clocks change.
    tz: the cron's time zone, like Europe/Berlin.
    start_at: no slot before it. end_at: none after it (both in ms since the epoch).
    limit: how many jobs in all.
    immediately: one job at once, besides the slots, when the schedule is made or its timing changes. Where the queue or
        the group has no room for it, the schedule is refused (`QueueFull`, `GroupFull`) and nothing is changed.

    Source: BullMQ's RepeatOptions.
    """

    every_ms: int | None = None
    cron: str | None = None
    tz: str = "UTC"
    start_at: int | None = None
    end_at: int | None = None
    limit: int | None = None
    immediately: bool = False

    def check(self) -> None:
        """Raise `InvalidOption` for what can never be right."""
        if (self.every_ms is None) == (self.cron is None):
            raise InvalidOption("every_ms", "either every_ms or cron must be given, and not both")
        if self.cron is not None:
            Cron(self.cron, self.tz)
        else:
            check_int("every_ms", self.every_ms, MIN_EVERY_MS, MAX_DELAY_MS)
            if self.tz != "UTC":
                raise InvalidOption("tz", "belongs to cron; every_ms knows no time zone")
        if self.start_at is not None:
            check_int("start_at", self.start_at, 0, MAX_INSTANT)
        if self.end_at is not None:
            check_int("end_at", self.end_at, self.start_at or 0, MAX_INSTANT)
        if self.limit is not None:
            check_int("limit", self.limit, 1, 2**31)
        check_bool("immediately", self.immediately)

    def slots_after(self, instant: int) -> Slots:
        """The next slots of a cron. Takes milliseconds, some ten of them for one like February's fifth Monday."""
        known_to = max(instant, (self.start_at or 0) - 1)
        slots = list(islice(Cron(self.cron or "", self.tz).after(known_to), SLOTS_AHEAD))
        kept = [slot for slot in slots if self.end_at is None or slot <= self.end_at]
        return Slots(known_to, kept, len(kept) < SLOTS_AHEAD)


class JobTemplate(msgspec.Struct, frozen=True):
    """What the jobs of a schedule are made from; the options may have no `id`, delay, deduplication or parent."""

    name: str
    data: Any = None
    opts: JobOptions | None = None

    def encode(self, scheduler_id: str, default_options: JobOptions) -> tuple[bytes, bytes]:
        """The checked header and data, as they are stored."""
        check_kind("template.opts", self.opts, JobOptions)
        options = self.opts or default_options
        for field in _OF_ONE_JOB:
            if getattr(options, field, None):
                raise InvalidOption(field, "cannot be given in the template of a schedule")
        header = options.header(self.name)  # its trace is not that of the jobs
        header = msgspec.structs.replace(header, schedule=scheduler_id, trace_context="")
        return msgspec.json.encode(header), encode_json("data", self.data, MAX_DATA_BYTES)


class JobScheduler(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it was when it was read. Instants are ms since the epoch, by the server's clock.

    next_at: its next slot; None when it has finished, and for a moment after the known slots of a cron ran out.
    made: how many jobs it made. skipped: slots that made none, because the job before had not started, or because
    nobody looked in time (of several missed slots one job is made, late).
    last_job_id: its newest job, which may be gone. is_finished: its `limit` or `end_at` is reached.
    """

    id: str
    repeat: RepeatOptions
    header: Header
    data: msgspec.Raw
    next_at: int | None = None
    made: int = 0
    skipped: int = 0
    last_job_id: str | None = None
    is_finished: bool = False

    @property
    def name(self) -> str:
        """The name of its jobs."""
        return self.header.name


class HungrySchedule(NamedTuple):
    """A schedule by cron that knows only a few slots ahead, as it was when it was read."""

    id: str
    version: str
    known_to: int
    repeat: RepeatOptions


def check_scheduler_id(scheduler_id: str) -> str:
    """Return the id, or raise `InvalidOption`. Its jobs are named `<id>:<slot>`."""
    if not isinstance(scheduler_id, str) or not _SCHEDULER_ID.fullmatch(scheduler_id):
        raise InvalidOption(
            "id", "must be 1-100 letters, digits, '_', '.', ':', '@' or '-', beginning with a letter or digit"
        )
    return scheduler_id
