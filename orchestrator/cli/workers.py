"""`kargah workers`: who is there, and what they do."""

import msgspec
from rich.text import Text

from orchestrator.cli.store import OtherQueue, opened, opened_all
from orchestrator.cli.tables import AsJson, age, plain, print_json, print_rows, table_of
from orchestrator.presence import WorkerInfo
from orchestrator.queue import MAX_PAGE
from orchestrator.sync import Queue

MOST = 1000


def workers(queue: OtherQueue = "", as_json: AsJson = False) -> None:
    """List the workers of all queues, or of one: where they run, how many jobs they have, what they tell of themselves.

    A worker that died vanishes after 15 seconds.
    """
    found: list[WorkerInfo] = []
    if queue:
        with opened(queue) as one:
            found = _workers_of(one)
    else:
        with opened_all() as queues:
            for each in queues:
                found += _workers_of(each)
    found.sort(key=lambda worker: (worker.queue, worker.name, worker.id))
    if as_json:
        print_json([msgspec.structs.asdict(worker) for worker in found])
        return
    table = table_of("QUEUE", "WORKER", "HOST", "PID", "JOBS", "UP", "SEEN", wide="INFO")
    for worker in found:
        info = " ".join(f"{name}={plain(value)}" for name, value in worker.info.items())
        jobs = f"{worker.active}/{worker.concurrency}"
        row = (worker.queue, worker.name, worker.host, str(worker.pid), jobs, age(worker.started_at))
        table.add_row(*map(Text, row), Text(f"{age(worker.last_seen_at)} ago"), Text(info))
    print_rows(table, "no workers")


def _workers_of(queue: Queue) -> list[WorkerInfo]:
    found: list[WorkerInfo] = []
    while len(found) < MOST:
        page = queue.get_workers(len(found), MAX_PAGE)
        found += page
        if len(page) < MAX_PAGE:
            break
    return found
