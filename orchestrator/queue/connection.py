"""What every part of a queue stands on: its name, its keys, its connections."""

import time
from types import TracebackType
from typing import Self

from orchestrator.given import check_kind
from orchestrator.group import WhyWaiting
from orchestrator.job import Header, JobOptions, check_bool
from orchestrator.keys import QUEUES_KEY, Keys
from orchestrator.scripts import DEADLINE_S, Client, Scripts, check_client, connect

REGISTER_AGAIN_S = 60.0


class QueueConnection:
    """A queue's name, keys and connections."""

    def __init__(
        self,
        name: str,
        redis: "str | Client" = "redis://localhost:6379",
        *,
        default_job_options: JobOptions | None = None,
        deadline_s: float = DEADLINE_S,
        durable: bool = False,
    ) -> None:
        check_kind("default_job_options", default_job_options, JobOptions)
        check_bool("durable", durable)
        self.keys = Keys(name)
        self.name = name
        self._owns_client = isinstance(redis, str)
        self.client: Client = connect(redis) if isinstance(redis, str) else check_client(redis)
        self.scripts = Scripts(self.client, self.keys, deadline_s, durable=durable)
        self._default_job_options = default_job_options or JobOptions()
        self._headers: dict[tuple[str, int], tuple[JobOptions, Header, bytes]] = {}
        self._registered_at = -REGISTER_AGAIN_S
        self._whys: dict[str, tuple[float, WhyWaiting | None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, if this queue opened them."""
        if self._owns_client:
            await self.client.aclose()

    def _is_registered(self) -> bool:
        return time.monotonic() - self._registered_at < REGISTER_AGAIN_S

    async def _register(self, until: float | None = None) -> None:
        """Name this queue to the duties and relays, before its first job; again for a server that lost its memory."""
        if not self._is_registered():
            now = time.monotonic()
            await self.scripts.retrying("SADD", lambda: self.client.sadd(QUEUES_KEY, self.name), until)
            self._registered_at = now
