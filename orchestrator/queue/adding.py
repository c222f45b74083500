"""Adding jobs."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

import msgspec

from orchestrator.errors import InvalidOption, StoreUnavailable
from orchestrator.given import check_kind
from orchestrator.job import MAX_DATA_BYTES, Header, Job, JobOptions, encode_json
from orchestrator.keys import Keys, new_job_id, new_token
from orchestrator.parent import Parent
from orchestrator.queue.reading import Reading
from orchestrator.replies import Added
from orchestrator.telemetry import adding


class NewJob(NamedTuple):
    """A job that was checked and is ready to be sent."""

    id: str
    header: Header
    header_json: bytes
    data: bytes

    @property
    def parts(self) -> tuple[str, bytes, bytes]:
        """What the scripts take."""
        return self.id, self.header_json, self.data


AddScript: TypeAlias = Callable[[str, str, bytes, bytes], Awaitable[Added]]


class Adding(Reading):
    """What a producer does."""

    async def add(self, name: str, data: object = None, opts: JobOptions | None = None) -> Job:
        """Store a job and queue it. What `opts` does not name is as in the queue's `default_job_options`.

        The same id again (also after a lost answer) gives the job that is there, `duplicated` when another
        call made it; a deduplication id that is held gives its holder, `deduplicated`. Raises `InvalidOption` before
        anything is sent, `QueueFull` when `max_waiting` jobs are there already or the relay is far behind, and
        `FlowRefused` when its parent cannot take it.
        """
        with adding(self.name, name) as note:
            new = self._check(name, data, opts)
            await self._register()
            job = await self._store(self.scripts.add_job, new)
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
        new = _prepare(name, data, opts)
        with contextlib.suppress(StoreUnavailable):  # naming the queue can wait for a server with room
            await self._register()
        return await self._store(self.scripts.fan_out, new)

    def _check(self, name: str, data: object, opts: JobOptions | None) -> NewJob:
        check_kind("opts", opts, JobOptions)
        new = _prepare(name, data, (opts or JobOptions()).over(self._default_job_options))
        if new.header.parent is not None:
            self._check_parent(new.header.parent)
        return new

    async def _store(self, script: AddScript, new: NewJob) -> Job:
        met_before = ""
        while True:
            added = await script(new_token(), *new.parts)
            if added.is_new:
                return self._made(new, added)
            met = await self._met(new, added, is_last=added.job_id == met_before)
            if met is not None:
                return met
            met_before = added.job_id

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


def _prepare(name: str, data: object, options: JobOptions) -> NewJob:
    header = options.header(name)
    job_id = new_job_id() if options.id is None else options.id
    return NewJob(job_id, header, msgspec.json.encode(header), encode_json("data", data, MAX_DATA_BYTES))
