"""taskiq on Redis streams (the broker that acknowledges) after the body has run; hiredis and uvloop.

No result backend, which it can do without: results cost it nothing here. `max_prefetch` is as many as run at once.
"""

from taskiq.acks import AcknowledgeType
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench.contenders.protocol import Contender, Data, Ran, body, main


class Taskiq(Contender):
    """As in its documentation; there is no bulk call."""

    packages = ("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        self.broker = RedisStreamBroker(self.url, consumer_id="0")
        self.task = self.broker.register_task(body, task_name="body")
        await self.broker.startup()

    async def add(self, data: Data) -> None:
        await self.task.kiq(data)

    async def work(self, ran: Ran) -> None:
        await self.open()
        await run_receiver_task(
            self.broker,
            max_async_tasks=self.concurrency,
            max_prefetch=self.concurrency,
            validate_params=False,
            ack_time=AcknowledgeType.WHEN_EXECUTED,
        )


if __name__ == "__main__":
    main(Taskiq)
