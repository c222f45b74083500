"""Adding jobs."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from orchestrator.errors import InvalidOption, StoreUnavailable
from orchestrator.given import check_kind
from orchestrator.job import MAX_DATA_BYTES, Header, Job, JobOptions, encode_json
from orchestrator.keys import Keys, new_job_id, new_token
from orchestrator.parent import Parent
from orchestrator.queue.reading import Reading
from orchestrator.queue.turn import Turn
from orchestrator.replies import Added
from orchestrator.scripts import NewParts
from orchestrator.telemetry import adding, trace_context

MAX_HEADERS = 256
_NO_OPTIONS = JobOptions()


class NewJob(NamedTuple):
    """A job that was checked and is ready to be sent."""

    id: str
    header: Header
    header_json: bytes
    data: bytes

    @property
    def parts(self) -> NewParts:
        """What the scripts take."""
        return self.id, self.header_json, self.data


AddScript: TypeAlias = Callable[[NewParts], Awaitable[Added]]


class Adding(Reading):
    """What a producer does."""

    _turn: Turn[NewParts, Added] | None = None

    async def add(self, name: str, data: object = None, opts: JobOptions | None = None) -> Job:
        """Store a job and queue it. What `opts` does not name is as in the queue's `default_job_options`.

        The same id again (also after a lost answer) gives the job that is there, `duplicated` when another
        call made it; a deduplication id that is held gives its holder, `deduplicated`. Raises `InvalidOption` before
        anything is sent, `QueueFull` when `max_waiting` jobs are there already or the relay is far behind, and
        `FlowRefused` when its parent cannot take it.
        """
        with adding(self.name, name) as note:
            new = self._check(name, data, opts)
            job = await self._store(self._add_with_others, new)
            note(job.id, len(job.data))
        return job

    async def fan_out(self, name: str, data: object, opts: JobOptions) -> Job:
        """Store a job that the service owes, like the delivery of an event: also when Redis is full.

        Otherwise like `add`, but for the queue's defaults, for deduplication, which would drop it, and for a parent,
        which could refuse it.
        """
        check_kind("opts", opts, JobOptions, or_none=False)
        if opts.deduplication is not None:
            raise InvalidOption("deduplication", "does not go with fan_out: what is owed is not dropped")
        if opts.parent is not None:
            raise InvalidOption("parent", "does not go with fan_out: what is owed is not refused")
        new = _new_job(opts, *_pack(name, opts), data)
        with contextlib.suppress(StoreUnavailable):  # naming the queue can wait for a server with room
            await self._register()
        return await self._store(lambda parts: self.scripts.fan_out(new_token(), *parts), new)

    def _check(self, name: str, data: object, opts: JobOptions | None) -> NewJob:
        check_kind("opts", opts, JobOptions)
        options = opts or _NO_OPTIONS
        return _new_job(options, *self._packed(name, options), data)

    def _packed(self, name: str, opts: JobOptions) -> tuple[Header, bytes]:
        """The checked header and its JSON. Those of the newest options are remembered, as these never change."""
        is_plain = isinstance(name, str) and not (opts.telemetry and trace_context())
        known = self._headers.get((name, id(opts))) if is_plain else None
        if known is not None:
            return known[1:]
        header, header_json = _pack(name, opts.over(self._default_job_options))
        if header.parent is not None:
            self._check_parent(header.parent)
        if is_plain:
            if len(self._headers) == MAX_HEADERS:
                self._headers.clear()
            self._headers[name, id(opts)] = opts, header, header_json
        return header, header_json

    async def _store(self, script: AddScript, new: NewJob) -> Job:
        met_before = ""
        while True:
            added = await script(new.parts)
            if added.is_new:
                return self._made(new, added)
            met = await self._met(new, added, is_last=added.job_id == met_before)
            if met is not None:
                return met
            met_before = added.job_id

    def _add_with_others(self, job: NewParts) -> Awaitable[Added]:
        """All that are added in one turn of the event loop go in one call."""
        loop = asyncio.get_running_loop()
        turn = self._turn
        if turn is None or not turn.is_open_on(loop):
            turn = self._turn = Turn(loop, self._add_until, self.scripts.deadline_s)
        return turn.join(job, len(job[1]) + len(job[2]))

    async def _add_until(self, jobs: Sequence[NewParts], until: float) -> list[Added | Exception]:
        if not self._is_registered():
            await self._register(until)
        return await self.scripts.add_jobs(new_token(), jobs, until=until)

    def _made(self, new: NewJob, added: Added) -> Job:
        return Job(
            queue=self.name,
            id=new.id,
            header=new.header,
            data=msgspec.Raw(new.data),
            state=added.state,
            created_at=added.created_at,
            priority=new.header.priority,
            due_at=added.created_at + new.header.delay_ms if new.header.delay_ms else None,
        )

    def _check_parent(self, parent: Parent) -> None:
        if Keys(parent.queue).tag != self.keys.tag:
            raise InvalidOption("parent.queue", f"{parent.queue} has another tag than {self.name}")

    async def _met(self, new: NewJob, added: Added, *, is_last: bool) -> Job | None:
        """The job that was there; None when it ended between the two calls, and the id or key may be free again.

        A deduplication key may outlive its job for good: then all that is known of that job are its id and its state.
        """
        is_same_id = added.outcome == "duplicated"
        present = await self.get_job(added.job_id)
        if present is not None:
            return present.replace(duplicated=is_same_id, deduplicated=not is_same_id)
        if is_same_id or not (is_last or added.state.is_finished):
            return None
        return self._made(new, added).replace(id=added.job_id, due_at=None, deduplicated=True)


def _pack(name: str, options: JobOptions) -> tuple[Header, bytes]:
    header = options.header(name)
    return header, msgspec.json.encode(header)


def _new_job(options: JobOptions, header: Header, header_json: bytes, data: object) -> NewJob:
    job_id = new_job_id() if options.id is None else options.id
    return NewJob(job_id, header, header_json, encode_json("data", data, MAX_DATA_BYTES))
