"""BullMQ's own Python port, at its defaults; hiredis and uvloop."""

from typing import Any

from bullmq import Queue, Worker

from bench.contenders.protocol import Contender, Data, Ran, main

QUEUE = "bench"


class BullmqPython(Contender):
    """As in its documentation."""

    packages = ("bullmq", "redis", "hiredis", "uvloop")
    has_bulk = True

    async def open(self) -> None:
        self.queue = Queue(QUEUE, {"connection": self.url})

    async def add(self, data: Data) -> None:
        await self.queue.add("job", data)

    async def add_bulk(self, many: list[Data]) -> None:
        await self.queue.addBulk([{"name": "job", "data": data} for data in many])

    async def work(self, ran: Ran) -> None:
        async def body(job: Any, token: str) -> None:
            await ran.body(job.data)

        self.worker = Worker(QUEUE, body, {"connection": self.url, "concurrency": self.concurrency})


if __name__ == "__main__":
    main(BullmqPython)
