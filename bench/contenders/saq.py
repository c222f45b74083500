"""saq with its defaults (JSON, results kept for ten minutes); hiredis and uvloop.

A worker of its own has no other tasks, so no timer but its usual ones. Producers may use 64 connections at once.
"""

from typing import Any

from saq.queue.redis import RedisQueue
from saq.worker import Worker

from bench.contenders.protocol import IN_FLIGHT, Contender, Data, Ran, main


class Saq(Contender):
    """As in its documentation; there is no bulk call."""

    packages = ("saq", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        self.queue = RedisQueue.from_url(self.url, max_concurrent_ops=IN_FLIGHT)
        await self.queue.connect()

    async def add(self, data: Data) -> None:
        await self.queue.enqueue("body", data=data)

    async def work(self, ran: Ran) -> None:
        async def body(ctx: Any, *, data: Data) -> None:
            await ran.body(data)

        await self.open()
        await Worker(self.queue, [("body", body)], concurrency=self.concurrency).start()


if __name__ == "__main__":
    main(Saq)
