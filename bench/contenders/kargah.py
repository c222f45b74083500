"""Kargah, with its defaults: every event, leases, history; nothing is switched off."""

from bench.contenders.protocol import Contender, Data, Ran, main
from orchestrator import ActiveJob, BulkJob, Queue, Worker

QUEUE = "bench"


class Kargah(Contender):
    """`Queue` and `Worker`; bulks of 1,000 with `atomic=False`, since one atomic call takes at most 500."""

    packages = ("kargah", "redis", "hiredis", "uvloop")
    has_bulk = True

    async def open(self) -> None:
        self.queue = Queue(QUEUE, self.url)

    async def add(self, data: Data) -> None:
        await self.queue.add("job", data)

    async def add_bulk(self, many: list[Data]) -> None:
        await self.queue.add_bulk([BulkJob("job", data) for data in many], atomic=False)

    async def work(self, ran: Ran) -> None:
        async def body(job: ActiveJob) -> None:
            await ran.body(job.data)

        await Worker(QUEUE, body, self.url, concurrency=self.concurrency).run()


if __name__ == "__main__":
    main(Kargah)
