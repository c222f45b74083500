"""Steering the whole queue."""

from orchestrator.job import check_int
from orchestrator.keys import new_token
from orchestrator.queue.connection import QueueConnection


class Admin(QueueConnection):
    """What is done to all jobs of the queue."""

    async def pause(self) -> None:
        """Let no more jobs start, on any worker; running ones go on."""
        await self.scripts.pause(new_token(), paused=True)

    async def resume(self) -> None:
        """Let jobs start again."""
        await self.scripts.pause(new_token(), paused=False)

    async def is_paused(self) -> bool:
        """Whether the queue is paused."""
        (paused,) = await self.scripts.get_meta("paused")
        return paused != ""

    async def set_global_concurrency(self, concurrency: int) -> None:
        """At most so many jobs run at once, over all workers; 0 lifts the limit."""
        check_int("concurrency", concurrency, 0, 1_000_000)
        await self.scripts.set_limits(new_token(), concurrency=concurrency)

    async def set_global_rate_limit(self, max_starts: int, duration_ms: int) -> None:
        """At most so many starts in any window of `duration_ms`; 0 lifts the limit."""
        check_int("max_starts", max_starts, 0, 10_000)
        check_int("duration_ms", duration_ms, 1, 86_400_000)
        await self.scripts.set_limits(new_token(), rate=(max_starts, duration_ms))

    async def set_max_waiting(self, count: int) -> None:
        """Refuse adds (`QueueFull`) while so many jobs wait, also for a time or for children; 0 lifts the limit.

        It bounds what producers may pile up: retries, stalled jobs and those handed back always find room.
        """
        check_int("count", count, 0, 2**53)
        await self.scripts.set_limits(new_token(), max_waiting=count)

    async def rate_limit(self, duration_ms: int) -> None:
        """Nothing starts for so long, as when an outside API said "too many requests"; 0 lifts it."""
        check_int("duration_ms", duration_ms, 0, 86_400_000)
        await self.scripts.set_limits(new_token(), limited_ms=duration_ms)

    async def remove_rate_limit(self) -> None:
        """Lift what `rate_limit`, or a processor's `RateLimitError`, set. Source: BullMQ's removeRateLimitKey."""
        await self.rate_limit(0)

    async def get_rate_limit_ttl(self) -> int:
        """For how many ms the limits on starts hold up the next one; 0 when they do not. A pause is none."""
        return (await self.scripts.get_limits()).wait_ms

    async def get_global_concurrency(self) -> int:
        """How many jobs may run at once, over all workers; 0 = no limit."""
        return (await self.scripts.get_limits()).concurrency

    async def get_global_rate_limit(self) -> tuple[int, int] | None:
        """The limit on starts: so many in any window of so many ms; None = no limit."""
        limits = await self.scripts.get_limits()
        return (limits.rate_max, limits.rate_ms) if limits.rate_max else None

    async def is_maxed(self) -> bool:
        """Whether as many jobs run as the global concurrency allows."""
        limits = await self.scripts.get_limits()
        return 0 < limits.concurrency <= limits.active
