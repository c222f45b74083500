"""A queue in a known position: jobs brought into each state by the scripts themselves, and time moved by hand."""

from typing import Any

import msgspec

from orchestrator.events import Event
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Claims, Finish
from tests import record

LEASE_MS = 60_000
INTERVAL_MS = 1000
LONG_AGO_MS = 100_000


class Scene:
    """Arranges a queue. `definitions` are all stored definitions, as they were when the jobs were added."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.client: Any = queue.client  # of whose answers redis-py's types say too little
        self.scripts = queue.scripts
        self.prefix = queue.keys.prefix
        self.definitions: dict[str, bytes | None] = {}
        self._count = 0

    async def add(self, job_id: str, data: bytes = b'{"x":1}', **options: Any) -> str:
        """Add a job; returns its id."""
        header = msgspec.json.encode(JobOptions(**options).header("paint"))
        (added,) = await self.scripts.add_jobs(f"add-{job_id}", [(job_id, header, data)])
        if isinstance(added, Exception):
            raise added
        self.definitions[job_id] = await self.definition(job_id)
        return job_id

    async def definition(self, job_id: str) -> bytes | None:
        """What is stored as the job's definition."""
        definition: bytes | None = await self.client.get(f"{self.prefix}job:{job_id}")
        return definition

    async def claim(self, slots: int = 1) -> Claims:
        """Claim by a worker of the scene."""
        return await self.scripts.move_to_active(self.token(), "w:0", "worker", LEASE_MS, INTERVAL_MS, slots)

    async def active(self, job_id: str, **options: Any) -> Claim:
        """A running job."""
        await self.add(job_id, **options)
        (claim,) = (await self.claim()).claims
        assert claim.job.id == job_id
        return claim

    async def finish(self, claim: Claim, outcome: str = "completed", content: bytes = b"1", pause_ms: int = -1) -> str:
        """End an attempt without claiming another job; returns what became of the job."""
        ending = Finish(claim.job.id, claim.lease, outcome, content, pause_ms)
        claims = await self.scripts.move_to_finished(self.token(), "w:1", "worker", LEASE_MS, INTERVAL_MS, 0, [ending])
        return claims.outcomes[0]

    async def completed(self, job_id: str, **options: Any) -> Claim:
        """A completed job."""
        claim = await self.active(job_id, **options)
        await self.finish(claim)
        return claim

    async def failed(self, job_id: str, **options: Any) -> Claim:
        """A failed job."""
        claim = await self.active(job_id, **options)
        await self.finish(claim, "failed", b'{"kind":"poison","message":"","details":{}}')
        return claim

    async def canceled(self, job_id: str, **options: Any) -> str:
        """A canceled job."""
        await self.add(job_id, **options)
        await self.scripts.cancel_job(self.token(), job_id, b'{"by":"","reason":""}')
        return job_id

    def token(self) -> str:
        """A request token that no other call of this scene has."""
        self._count += 1
        return f"token-{self._count}"

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────

    async def make_due(self) -> None:
        """All delayed jobs are due."""
        await self._shift("delayed", LONG_AGO_MS)

    async def end_leases(self) -> None:
        """All leases ran out."""
        await self._shift("active", 2 * LEASE_MS)

    async def pass_deadlines(self) -> None:
        """All `expires_ms` ran out."""
        await self._shift("deadlines", LONG_AGO_MS)

    async def end_retention(self, job_id: str, state: str) -> None:
        """A finished job's time is over: its keys are gone, its entries are due."""
        for kind in ("job", "state", "log", "lines", "children"):
            await self.client.delete(f"{self.prefix}{kind}:{job_id}")
        await self.client.zadd(f"{self.prefix}expires:{state}", {job_id: 1})
        self.definitions.pop(job_id, None)

    async def pass_minute(self) -> None:
        """What was counted so far was counted a minute ago."""
        await self.change_meta(minute=int((await self.meta())["minute"]) - 1)

    async def meta(self) -> dict[str, str]:
        """The queue's own record."""
        return record.unpack_meta(await self.client.get(self.queue.keys.meta))

    async def change_meta(self, **changed: Any) -> None:
        """Change that; None takes something away."""
        await record.change_meta(self.client, self.queue.keys.meta, **changed)

    async def record(self, job_id: str) -> dict[str, Any]:
        """What is stored of a job beside its definition."""
        return record.unpack(await self.client.get(f"{self.prefix}state:{job_id}"))

    async def change_record(self, job_id: str, **changed: Any) -> None:
        """Change that, as if time had gone on."""
        packed = record.pack(await self.record(job_id) | changed)
        await self.client.set(f"{self.prefix}state:{job_id}", packed, keepttl=True)

    async def _shift(self, key: str, ms: int) -> None:
        for member, score in await self.client.zrange(f"{self.prefix}{key}", 0, -1, withscores=True):
            await self.client.zadd(f"{self.prefix}{key}", {member: score - ms})


async def drain(scene: Scene) -> list[str]:
    """Claim and complete everything that waits; returns the ids in the order of their claims."""
    order = []
    while claims := (await scene.claim()).claims:
        order.append(claims[0].job.id)
        await scene.finish(claims[0])
    return order


def types(history: list[Event]) -> list[str]:
    """The types of events."""
    return [event.type for event in history]
