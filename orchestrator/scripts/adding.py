"""Calls that store jobs."""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from orchestrator.keys import new_token
from orchestrator.replies import Added, read_added
from orchestrator.scripts.call import ScriptCaller, error_of
from orchestrator.scripts.turn import Turn

OUTBOX_MAX = 100_000

NewParts: TypeAlias = tuple[str, bytes, bytes]
"""What is sent of a new job: id, header, data."""


class AddingScripts(ScriptCaller):
    """What adds jobs."""

    _turn: "Turn[NewParts, Added] | None" = None

    async def add_jobs(self, token: str, jobs: Sequence[NewParts]) -> list[Added | Exception]:
        """Of each what became of it, and the job that is there now; or why it was refused."""
        parts = [part for job in jobs for part in job]
        replies = await self._run_adding("add_jobs", token, OUTBOX_MAX, *parts)
        return [read_added(reply) if type(reply) is list else error_of(reply) for reply in replies]

    async def add_with_others(self, job: NewParts) -> Added:
        """The same for one job, which goes with all that are added in this turn of the event loop, in one call."""
        loop = asyncio.get_running_loop()
        turn = self._turn
        if turn is None or not turn.is_open_on(loop):
            turn = self._turn = Turn(loop, self._add_jobs_of_turn)
        return await turn.join(job, len(job[1]) + len(job[2]))

    async def add_bulk(self, token: str, jobs: Sequence[NewParts]) -> list[Added]:
        """The same for many: all are stored, or none."""
        parts = [part for job in jobs for part in job]
        return [read_added(reply) for reply in await self._run_adding("add_bulk", token, OUTBOX_MAX, *parts)]

    async def fan_out(self, token: str, job_id: str, header: bytes, data: bytes) -> Added:
        """The same for a delivery, which a full server takes too."""
        return read_added(await self._run("fan_out", token, job_id, header, data))

    async def _add_jobs_of_turn(self, jobs: Sequence[NewParts]) -> list[Added | Exception]:
        return await self.add_jobs(new_token(), jobs)
