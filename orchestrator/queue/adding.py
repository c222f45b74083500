"""Adding jobs."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from orchestrator.errors import InvalidOption, StoreUnavailable
from orchestrator.job import MAX_DATA_BYTES, Job, JobOptions, JobState, Parent, encode_json
from orchestrator.keys import Keys, new_job_id, new_token
from orchestrator.queue.reading import Reading

AddScript: TypeAlias = Callable[[str, str, bytes, bytes], Awaitable[tuple[bool, JobState, int]]]


class Adding(Reading):
    """What a producer does."""

    async def add(self, name: str, data: object = None, opts: JobOptions | None = None) -> Job:
        """Store a job and queue it.

        The same id again (also after a lost answer) gives the job that is there, `duplicated` when another
        call made it. Raises `InvalidOption` before anything is sent, `QueueFull` when the relay is far behind,
        `FlowRefused` when its parent cannot take it.
        """
        await self._register()
        return await self._store(self.scripts.add_job, name, data, opts or self._default_job_options)

    async def fan_out(self, name: str, data: object, opts: JobOptions) -> Job:
        """Store a job that the service owes, like the delivery of an event: also when Redis is full.

        Otherwise like `add`.
        """
        with contextlib.suppress(StoreUnavailable):  # naming the queue can wait for a server with room
            await self._register()
        return await self._store(self.scripts.fan_out, name, data, opts)

    async def _store(self, script: AddScript, name: str, data: object, options: JobOptions) -> Job:
        header = options.header(name)
        if header.parent is not None:
            self._check_parent(header.parent)
        encoded = encode_json("data", data, MAX_DATA_BYTES)
        job_id = new_job_id() if options.id is None else options.id
        while True:
            is_new, state, created_at = await script(new_token(), job_id, msgspec.json.encode(header), encoded)
            if is_new:
                break
            present = await self.get_job(job_id)
            if present is not None:  # else it ended between the two calls, and the id is free again
                return present.replace(duplicated=True)
        return Job(
            queue=self.name,
            id=job_id,
            header=header,
            data=msgspec.Raw(encoded),
            state=state,
            created_at=created_at,
            priority=header.priority,
            due_at=created_at + header.delay_ms if header.delay_ms else None,
        )

    def _check_parent(self, parent: Parent) -> None:
        if Keys(parent.queue).tag != self.keys.tag:
            raise InvalidOption("parent.queue", f"{parent.queue} has another tag than {self.name}")
