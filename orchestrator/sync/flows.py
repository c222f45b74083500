"""`FlowProducer` without async. Written by orchestrator/sync_writer.py: do not edit."""

from collections.abc import Mapping, Sequence

from orchestrator.children import JobNode
from orchestrator.flows import FlowJob
from orchestrator.flows import FlowProducer as Asynchronous
from orchestrator.job import JobOptions
from orchestrator.scripts import DEADLINE_S
from orchestrator.sync.background import Facade


class FlowProducer(Facade[Asynchronous]):
    """`orchestrator.flows.FlowProducer` whose methods wait for their answer, in any thread."""

    def __init__(
        self,
        redis: str = "redis://localhost:6379",
        *,
        default_job_options: Mapping[str, JobOptions] | None = None,
        deadline_s: float = DEADLINE_S,
        durable: bool = False,
    ) -> None:
        super().__init__(
            lambda: Asynchronous(redis, default_job_options=default_job_options, deadline_s=deadline_s, durable=durable)
        )

    def add(self, flow: FlowJob) -> JobNode:
        """Store a flow whole: at most 500 jobs in 20 levels and 16 MiB of data, all or nothing.

        When there is a job of the root's id already, the flow is left as it is there, and its root is `duplicated`.
        Raises `InvalidOption` before anything is sent, `FlowRefused` when another of its ids is taken or the root's
        own parent cannot take it, and `QueueFull` when one of the queues has no room, or its relay is far behind.
        """
        return self._call(lambda opened: opened.add(flow))

    def add_bulk(self, flows: Sequence[FlowJob]) -> list[JobNode]:
        """Store several flows, all or nothing; the limits are those of `add`, for all of them together."""
        return self._call(lambda opened: opened.add_bulk(flows))

    def get_flow(self, queue: str, job_id: str, depth: int = 10, max_children: int = 20) -> JobNode | None:
        """The tree below a job; see `Queue.get_flow`."""
        return self._call(lambda opened: opened.get_flow(queue, job_id, depth, max_children))
