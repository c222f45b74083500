"""dramatiq with its Redis broker and its usual middleware but for Prometheus; hiredis.

It acknowledges after the body has run, and prefetches twice as many messages as it has threads.
"""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.contenders.protocol import Data, Ran, SyncContender, body_sync, main


class Dramatiq(SyncContender):
    """As in its documentation; there is no bulk call."""

    packages = ("dramatiq", "redis", "hiredis")

    def open(self) -> None:
        self.broker = RedisBroker(url=self.url)
        dramatiq.set_broker(self.broker)
        self.actor = dramatiq.actor(body_sync, actor_name="body", broker=self.broker)

    def add(self, data: Data) -> None:
        self.actor.send(data)

    def work(self, ran: Ran) -> None:
        self.open()
        dramatiq.Worker(self.broker, worker_threads=self.concurrency).start()


if __name__ == "__main__":
    main(Dramatiq)
