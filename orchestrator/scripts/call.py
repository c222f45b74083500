"""One call of a script: sent again until its answer is known, its errors turned into ours."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from redis import exceptions as redis_errors

import lua
from orchestrator import errors
from orchestrator.keys import Keys
from orchestrator.scripts.cluster import ClusterClient
from orchestrator.scripts.connection import Client, drop_connections, node_of, send_together
from orchestrator.scripts.durable import Disk
from orchestrator.scripts.library import MISSING, is_missing, load
from orchestrator.scripts.node import NodeClient

DEADLINE_S = 20.0
"""For how long a call is sent again before `OutcomeUnknown`."""

_ERRORS: dict[str, type[errors.KargahError]] = {
    "JOB_NOT_FOUND": errors.JobNotFound,
    "WRONG_STATE": errors.WrongState,
    "LEASE_LOST": errors.LeaseLost,
    "QUEUE_FULL": errors.QueueFull,
    "FLOW_REFUSED": errors.FlowRefused,
    "GROUP_FULL": errors.GroupFull,
    "LAYOUT_MISMATCH": errors.LayoutMismatch,
    "OOM": errors.StoreUnavailable,
    "MISCONF": errors.StoreUnavailable,
}
_PASSING = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ClusterError,
    redis_errors.TryAgainError,
    redis_errors.ReadOnlyError,
    redis_errors.MasterDownError,
    TimeoutError,
    OSError,
)
_DEMOTED = (redis_errors.ReadOnlyError, redis_errors.MasterDownError)
"""What a primary says that became a replica: behind the same name there may be another primary by now."""
_PASSING_WORDS = ("BUSY ", "UNBLOCKED ", "NOREPLICAS ", MISSING)
"""Errors that redis-py has no class for. A function that was loaded is missing where the slot has moved meanwhile."""


class ScriptCaller:
    """Runs the scripts of one queue. Every call may be sent more than once; the scripts make that harmless."""

    def __init__(self, client: Client, keys: Keys, deadline_s: float = DEADLINE_S, *, durable: bool = False) -> None:
        self.client = client
        self.keys = keys
        self.deadline_s = deadline_s
        self._disk = Disk(client, keys, deadline_s) if durable else None
        self.answered_at: float | None = None
        """When Redis last answered, by the event loop's clock."""

    async def _run(self, name: str, *args: str | bytes | int, until: float | None = None) -> Any:
        return await self._answer(name, partial(self._evaluate, name, args), until)

    async def _run_adding(self, name: str, *args: str | bytes | int, until: float | None = None) -> Any:
        """Like `_run`, for what stores jobs: where that has to be durable, the answer waits for the server's disk."""
        disk = self._disk
        if disk is None:
            return await self._run(name, *args, until=until)
        return await self.retrying(name, lambda: self._call(disk.run, name, args), until)

    async def _run_when_woken(self, blocking: Client, block_s: float, name: str, *args: str | bytes | int) -> Any:
        """One try of a script, by another client, right behind a read of the marker that blocks for `block_s` at most.

        The server runs it as soon as the read is over. Raises what redis-py raises.
        """
        read = ("BZPOPMIN", self.keys.marker, block_s)
        _, answer = await send_together(blocking, self.keys.marker, read, self._command(name, args))
        self.answered_at = asyncio.get_running_loop().time()
        return answer

    async def retrying(self, name: str, call: Callable[[], Awaitable[Any]], until: float | None = None) -> Any:
        """Make a call that may be made twice, until it is answered or the deadline is over.

        until: the deadline by the event loop's clock, where it began to run before.
        """

        async def limited(deadline: float) -> Any:
            async with asyncio.timeout_at(deadline):
                return await call()

        return await self._answer(name, limited, until)

    async def _answer(self, name: str, call: Callable[[float], Awaitable[Any]], until: float | None) -> Any:
        """The same for a call that is told the deadline, and ends there with a TimeoutError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.deadline_s if until is None else until
        pause_s = 0.02
        trouble: Exception | None = None
        while True:
            try:
                answer = await call(deadline)
                self.answered_at = loop.time()
                return answer
            except _PASSING as problem:
                trouble = problem if trouble is None or str(problem) else trouble  # the deadline itself says nothing
                if isinstance(problem, _DEMOTED):
                    await drop_connections(self.client)
            except redis_errors.ResponseError as problem:
                if not str(problem).startswith(_PASSING_WORDS):
                    raise error_of(problem) from None
                trouble = problem
            wait_s = pause_s * random.uniform(0.5, 1.0)
            if loop.time() + wait_s >= deadline:
                raise errors.OutcomeUnknown(
                    f"Redis gave no answer to {name} within {self.deadline_s:g} s ({_reason(trouble)}); "
                    "the call may have had its effect, and may safely be sent again"
                ) from trouble
            await asyncio.sleep(wait_s)
            pause_s = min(pause_s * 2, 1.0)

    async def _evaluate(self, name: str, args: Sequence[str | bytes | int], until: float) -> Any:
        only_reads = name.startswith("get_")
        if isinstance(self.client, NodeClient) and not only_reads:  # it minds the deadline itself, for less
            try:
                return await self.client.execute_command(*self._command(name, args), until=until)
            except redis_errors.ResponseError as problem:
                if not is_missing(problem):
                    raise
        send: Callable[..., Awaitable[Any]] = self.client.execute_command
        if isinstance(self.client, NodeClient | ClusterClient):
            send = partial(send, only_reads=only_reads)
        async with asyncio.timeout_at(until):
            return await self._call(send, name, args)

    async def _call(self, send: Callable[..., Awaitable[Any]], name: str, args: Sequence[str | bytes | int]) -> Any:
        command = self._command(name, args)
        try:
            return await send(*command)
        except redis_errors.ResponseError as problem:
            if not is_missing(problem):
                raise
        await load(await node_of(self.client, self.keys.meta))
        return await send(*command)

    def _command(self, name: str, args: Sequence[str | bytes | int]) -> tuple[str | bytes | int, ...]:
        return "FCALL", lua.library().function(name), 2, self.keys.meta, self.keys.none, *args


def error_of(problem: Exception) -> Exception:
    """Our error for one that Redis or a script answered; itself where we have none."""
    word, _, rest = str(problem).partition(" ")
    if isinstance(problem, redis_errors.AskError):
        return errors.InvalidOption("redis", "the server is a node of a cluster; name it redis+cluster://host:port")
    if isinstance(problem, redis_errors.OutOfMemoryError):
        return errors.StoreUnavailable("Redis is full (maxmemory); nothing was changed")
    named = _ERRORS.get(word)
    return problem if named is None else named(rest)


def _reason(trouble: Exception) -> str:
    return str(trouble) or type(trouble).__name__
