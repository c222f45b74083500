"""rq with its `SimpleWorker`, which runs jobs in its own process (the default one forks for each); hiredis.

Concurrency is 1. Results are kept for 500 s, as they are by default; the log of each job is left out.
"""

import logging

from redis import Redis
from rq import Queue, SimpleWorker

from bench.contenders.protocol import Data, Ran, SyncContender, body_sync, main

QUEUE = "bench"


class Rq(SyncContender):
    """As in its documentation; the bulk call is `enqueue_many`."""

    packages = ("rq", "redis", "hiredis")
    has_bulk = True

    def open(self) -> None:
        self.queue = Queue(QUEUE, connection=Redis.from_url(self.url))

    def add(self, data: Data) -> None:
        self.queue.enqueue(body_sync, data)

    def add_bulk(self, many: list[Data]) -> None:
        self.queue.enqueue_many([Queue.prepare_data(body_sync, (data,)) for data in many])

    def work(self, ran: Ran) -> None:
        logging.disable(logging.INFO)
        worker = SimpleWorker([QUEUE], connection=Redis.from_url(self.url), log_job_description=False)
        worker.work(logging_level="WARNING")


if __name__ == "__main__":
    main(Rq)
