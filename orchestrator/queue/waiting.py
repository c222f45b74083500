"""Waiting for what becomes of a job."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from orchestrator.errors import JobFailed, JobNotFound, JobWasCanceled
from orchestrator.events import TERMINAL, Event
from orchestrator.hub import Hub, Lagged, Watch
from orchestrator.job import Job
from orchestrator.keys import check_job_id
from orchestrator.queue.reading import Reading


class Waiting(Reading):
    """What a producer does that needs the result. All waiting tasks of a queue share one subscription."""

    _hub: Hub | None = None
    _waiters = 0

    async def wait_until_finished(self, job_id: str, timeout_s: float | None = None) -> Any:
        """The result of the job, once it completes; at once, when it has.

        Raises `JobFailed`, `JobWasCanceled`, `JobNotFound` (there is none, or it was removed unfinished or more than a
        minute ago), `TimeoutError`. A job that is not kept still gives its result for a minute.

        Source: BullMQ's Job.waitUntilFinished.
        """
        check_job_id(job_id)
        async with asyncio.timeout(timeout_s):
            while True:
                with contextlib.suppress(Lagged):
                    async with self._watching(job_id) as watch:
                        return await self._result(job_id, watch)

    async def _result(self, job_id: str, watch: Watch) -> Any:
        """Subscribed by now: what is not in the answer to this read will be told."""
        found = await self.scripts.get_job(job_id, history=False)
        if found is None:
            return await self._result_in(await self._last_event(job_id))
        job, _, last_id = found
        if job.state.is_finished:
            return _result_of(job)
        watch.skip_to(last_id)
        async for event in watch:
            if event.type in TERMINAL:
                return await self._result_in(event)
            if event.type == "removed":
                raise JobNotFound(f"job {job_id} was removed before it finished")
        raise Lagged("the watch ended")

    async def _result_in(self, event: Event) -> Any:
        """What a terminal event says; a result too large for it is in the record, or is kept for a minute."""
        job_id, fields = event.job or "", event.fields
        match event.type:
            case "completed" if "result" in fields:
                return fields["result"]
            case "completed":
                job = await self.get_job(job_id)
                if job is not None and job.result is not None and job.run == event.run:
                    return msgspec.json.decode(job.result)
                return await self._late_result(job_id)
            case "failed":
                error = fields["error"]
                raise JobFailed(job_id, fields["reason"], error["kind"], error["message"], error.get("details", {}))
            case _:
                raise JobWasCanceled(job_id, fields["cancel"]["by"], fields["cancel"]["reason"])

    async def _last_event(self, job_id: str) -> Event:
        """The terminal event of a job that is gone; known for a minute."""
        key = f"{self.keys.prefix}gone:{job_id}"
        tombstone = await self.scripts.retrying("GET", lambda: self.client.get(key))
        if tombstone is not None:
            event_id = msgspec.json.decode(tombstone)["event"]
            entries = await self.scripts.retrying(
                "XRANGE", lambda: self.client.xrange(self.keys.events, event_id, count=1)
            )
            for entry_id, fields in entries:
                for event in Event.decode_together(entry_id, fields[b"e"]):
                    if event.id == event_id and event.job == job_id and event.type in TERMINAL:
                        return event
        raise JobNotFound(f"there is no job {job_id}, nor one that finished within the last minute")

    async def _late_result(self, job_id: str) -> Any:
        key = f"{self.keys.prefix}result:{job_id}"
        result = await self.scripts.retrying("GET", lambda: self.client.get(key))
        if result is None:
            raise JobNotFound(f"job {job_id} completed, but its result is not there any more")
        return msgspec.json.decode(result)

    @contextlib.asynccontextmanager
    async def _watching(self, job_id: str) -> AsyncIterator[Watch]:
        """A watch on one job; the first one subscribes, the last one lets go."""
        self._waiters += 1
        try:
            if self._hub is None:
                self._hub = Hub(self)
                await self._hub.__aenter__()
            hub = self._hub
            async with hub.watch(job_id) as watch:
                yield watch
        finally:
            self._waiters -= 1
            if self._waiters == 0:
                unused, self._hub = self._hub, None
                if unused is not None:
                    await unused.__aexit__(None, None, None)


def _result_of(job: Job) -> Any:
    if job.state == "completed":
        return None if job.result is None else msgspec.json.decode(job.result)
    if job.state == "failed" and job.error is not None:
        raise JobFailed(job.id, job.reason or "error", job.error.kind, job.error.message, job.error.details)
    cancel = job.cancel
    raise JobWasCanceled(job.id, cancel.by if cancel else "", cancel.reason if cancel else "")
