"""Adding many jobs at once."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from orchestrator.errors import BulkIncomplete, InvalidOption, KargahError, OutcomeUnknown
from orchestrator.job import Job, JobOptions
from orchestrator.keys import new_token
from orchestrator.queue.adding import Adding, NewJob
from orchestrator.replies import Added
from orchestrator.telemetry import adding

MAX_BULK = 500
MAX_BULK_BYTES = 8 * 1024 * 1024
CHUNK = 100
READ_AT_ONCE = 32


class BulkJob(msgspec.Struct, frozen=True):
    """One job of a bulk."""

    name: str
    data: object = None
    opts: JobOptions | None = None


SomeJob: TypeAlias = BulkJob | tuple[str] | tuple[str, object] | tuple[str, object, JobOptions | None]


class BulkAdding(Adding):
    """What a producer of many jobs does."""

    async def add_bulk(self, jobs: Iterable[SomeJob], *, atomic: bool = True) -> list[Job]:
        """Store many jobs, each a `BulkJob` or (name, data, opts); each answers as `add` does, in the same order.

        All are stored, or none: up to 500 jobs and 8 MiB. With `atomic=False` any number, a chunk at a time; what
        stops it on the way is a `BulkIncomplete` that says which are stored. Every job is checked before any is sent:
        `InvalidOption` names it, as in `jobs[3].priority`. A parent must be there before; see `FlowProducer`.
        """
        with adding(self.name, "bulk"):
            return await self._add_all(self._check_all(jobs), is_atomic=atomic)

    async def _add_all(self, new: list[NewJob], *, is_atomic: bool) -> list[Job]:
        size = sum(_size(job) for job in new)
        if is_atomic and len(new) > MAX_BULK:
            raise InvalidOption("jobs", f"are {len(new)}; at most {MAX_BULK} can be added at once (see atomic=False)")
        if is_atomic and size > MAX_BULK_BYTES:
            raise InvalidOption("jobs", f"are {size} bytes; {MAX_BULK_BYTES} can be added at once (see atomic=False)")
        if not new:
            return []
        await self._register()
        if is_atomic:
            return await self._answers(new, await self._send(new))
        return await self._answers(new, await self._send_chunks(new))

    def _check_all(self, jobs: Iterable[SomeJob]) -> list[NewJob]:
        checked: list[NewJob] = []
        places: dict[str, int] = {}
        for index, job in enumerate(jobs):
            try:
                new = self._check(*_fields(job))
            except InvalidOption as problem:
                raise InvalidOption(f"jobs[{index}].{problem.field}", problem.problem) from None
            if places.setdefault(new.id, index) != index:
                raise InvalidOption(f"jobs[{index}].id", f"is the id of jobs[{places[new.id]}] too")
            checked.append(new)
        return checked

    async def _send(self, new: Sequence[NewJob]) -> list[Added]:
        return await self.scripts.add_bulk(new_token(), [job.parts for job in new])

    async def _send_chunks(self, new: Sequence[NewJob]) -> list[Added]:
        answers: list[Added] = []
        stored: list[list[str]] = []
        for chunk in _chunks(new):
            try:
                answers += await self._send(chunk)
            except KargahError as problem:
                sent = sum(map(len, stored))
                rest = [job.id for job in new[sent:]]
                in_doubt = len(chunk) if isinstance(problem, OutcomeUnknown) else 0
                raise BulkIncomplete(problem, stored, rest[:in_doubt], rest[in_doubt:]) from problem
            stored.append([job.id for job in chunk])
        return answers

    async def _answers(self, new: Sequence[NewJob], answers: Sequence[Added]) -> list[Job]:
        jobs = [self._made(*pair) for pair in zip(new, answers, strict=True)]
        met = [index for index, added in enumerate(answers) if not added.is_new]
        for start in range(0, len(met), READ_AT_ONCE):
            some = met[start : start + READ_AT_ONCE]
            found = await asyncio.gather(*(self._answer(new[index], answers[index]) for index in some))
            for index, job in zip(some, found, strict=True):
                jobs[index] = job
        return jobs

    async def _answer(self, new: NewJob, added: Added) -> Job:
        met = await self._met(new, added, is_last=False)
        return met or await self._store(self._add_with_others, new)


def _fields(job: Any) -> tuple[Any, Any, JobOptions | None]:
    if not isinstance(job, BulkJob):
        if not isinstance(job, tuple) or not 1 <= len(job) <= 3:
            raise InvalidOption("job", "must be a BulkJob or (name, data, opts)")
        job = BulkJob(*job)
    if job.opts is not None and not isinstance(job.opts, JobOptions):
        raise InvalidOption("opts", "must be JobOptions")
    return job.name, job.data, job.opts


def _size(job: NewJob) -> int:
    return len(job.header_json) + len(job.data)


def _chunks(new: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """Cut so that no chunk holds the server up for long."""
    chunks: list[Sequence[NewJob]] = []
    start, size = 0, 0
    for index, job in enumerate(new):
        if index > start and (index - start == CHUNK or size + _size(job) > MAX_BULK_BYTES // 4):
            chunks.append(new[start:index])
            start, size = index, 0
        size += _size(job)
    return [*chunks, new[start:]]
