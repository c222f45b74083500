"""The commands' way to the queues themselves: the Redis of the settings, or that of a running `kargah up`."""

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer

from orchestrator.embedded import redis_url, socket_path
from orchestrator.errors import InvalidOption, StoreUnavailable
from orchestrator.settings import Settings
from orchestrator.sync import Queue

DEADLINE_S = 3.0
ADVICE = "Is `kargah up` running? Start it, or set KARGAH_REDIS_URL to the Redis of the queues."

QueueName = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="A queue, as `kargah queues` shows it.", show_default=False),
]
OtherQueue = Annotated[
    str,
    typer.Option("--queue", "-q", metavar="QUEUE", help="A queue, as `kargah queues` shows it.", show_default=False),
]


@contextlib.contextmanager
def opened(name: str = "", *, must_exist: bool = True) -> Iterator[Queue]:
    """The queue of that name, or the generations'. Raises `StoreUnavailable`, and `InvalidOption` if there is none."""
    settings = Settings.from_env()
    if not settings.redis_url and not socket_path(settings.data_dir).exists():
        raise StoreUnavailable(f"no Redis runs with the data of {settings.data_dir}")
    with Queue(name or settings.queue, redis_url(settings), deadline_s=DEADLINE_S) as queue:
        if must_exist and name:
            known = queue.get_queue_names()
            if name not in known:
                raise InvalidOption(name, f"is none of the queues here: {', '.join(known) or '(there are none yet)'}")
        yield queue


@contextlib.contextmanager
def opened_all() -> Iterator[list[Queue]]:
    """All queues of this Redis, the generations' among them."""
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(opened())
        url = redis_url(Settings.from_env())
        others = [name for name in own.get_queue_names() if name != own.name]
        queues = [own, *(stack.enter_context(Queue(name, url, deadline_s=DEADLINE_S)) for name in others)]
        yield sorted(queues, key=lambda queue: queue.name)
