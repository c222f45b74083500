"""Celery with `acks_late`, so that a job outlives its worker as everywhere here, and no result backend; hiredis.

One worker process: the pool is `solo` for one job at once and `threads` for more. No gossip, mingle or events, which
only concern several workers.
"""

from celery import Celery as App

from bench.contenders.protocol import Data, Ran, SyncContender, body_sync, main


class Celery(SyncContender):
    """As in its documentation; there is no bulk call."""

    packages = ("celery", "kombu", "redis", "hiredis")

    def open(self) -> None:
        url = self.url.replace("unix://", "redis+socket://")
        self.app = App("bench", broker=url, task_acks_late=True, task_ignore_result=True)
        self.task = self.app.task(body_sync, name="body")

    def add(self, data: Data) -> None:
        self.task.apply_async((data,))

    def work(self, ran: Ran) -> None:
        self.open()
        pool = "solo" if self.concurrency == 1 else "threads"
        options = ("--without-gossip", "--without-mingle", "--loglevel=ERROR", f"--pool={pool}")
        self.app.worker_main(["--quiet", "worker", *options, f"--concurrency={self.concurrency}"])


if __name__ == "__main__":
    main(Celery)
