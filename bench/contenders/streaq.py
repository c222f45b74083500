"""streaq with its defaults (pickle, prefetch as many as run at once); coredis and uvloop."""

from streaq import Worker

from bench.contenders.protocol import Contender, Data, Ran, body, main


class Streaq(Contender):
    """As in its documentation; the bulk call is `enqueue_many`."""

    packages = ("streaq", "coredis", "uvloop")
    has_bulk = True

    async def open(self) -> None:
        self._make()
        await self.worker.__aenter__()

    def _make(self) -> None:
        self.worker = Worker(redis_url=self.url, concurrency=self.concurrency, handle_signals=False)
        self.task = self.worker.task(body)

    async def add(self, data: Data) -> None:
        await self.task.enqueue(data)

    async def add_bulk(self, many: list[Data]) -> None:
        await self.worker.enqueue_many([self.task.enqueue(data) for data in many])

    async def work(self, ran: Ran) -> None:
        self._make()
        await self.worker.run_async()


if __name__ == "__main__":
    main(Streaq)
