"""Kargah without async, for scripts and Django's views: the same methods, which wait for their answer.

    from orchestrator.sync import Queue

    with Queue("paint", "redis://localhost") as queue:
        job = queue.add("portrait", {"of": "a cat"})

A queue may be shared by threads, and used on after a fork (gunicorn, multiprocessing): each process has one thread
of its own, on which the calls run. In async code use `orchestrator.Queue`.
"""

from orchestrator.sync.flows import FlowProducer
from orchestrator.sync.queue import Queue

__all__ = ["FlowProducer", "Queue"]
