"""arq with hiredis and uvloop, polling every 10 ms in place of every 500: it has no blocking read, so with its default
an idle worker takes a quarter of a second to see a job, and one at concurrency 1 does two jobs a second.

Results are kept for an hour, as they are by default; the log of each job is left out.
"""

import logging
from typing import Any

from arq.connections import RedisSettings, create_pool
from arq.worker import Worker, func

from bench.contenders.protocol import Contender, Data, Ran, main

POLL_S = 0.01


class Arq(Contender):
    """As in its documentation; there is no bulk call."""

    packages = ("arq", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        self.pool = await create_pool(RedisSettings.from_dsn(self.url))

    async def add(self, data: Data) -> None:
        await self.pool.enqueue_job("body", data)

    async def work(self, ran: Ran) -> None:
        async def body(ctx: Any, data: Data) -> None:
            await ran.body(data)

        logging.getLogger("arq").setLevel(logging.WARNING)
        worker = Worker(
            [func(body, name="body")],
            redis_settings=RedisSettings.from_dsn(self.url),
            max_jobs=self.concurrency,
            poll_delay=POLL_S,
            handle_signals=False,
        )
        await worker.async_run()


if __name__ == "__main__":
    main(Arq)
