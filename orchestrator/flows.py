"""Flows: trees of jobs, in which a parent runs when its children have ended."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from orchestrator.children import MAX_DEPTH, MAX_JOBS, JobNode, read_flow
from orchestrator.errors import InvalidOption
from orchestrator.given import check_kind
from orchestrator.job import MAX_DATA_BYTES, Header, Job, JobOptions, JobState, check_bool, encode_json
from orchestrator.keys import QUEUES_KEY, Keys, check_queue_name, new_job_id, new_token
from orchestrator.parent import Parent
from orchestrator.scripts import DEADLINE_S, Client, FlowEntry, Scripts, check_client, connect
from orchestrator.telemetry import adding

MAX_BYTES = 16 * 1024 * 1024
REGISTER_AGAIN_S = 60.0


class FlowJob(msgspec.Struct, frozen=True):
    """A job to add, and the jobs it waits for. `opts.on_failure` says what its failure means to its parent."""

    name: str
    queue: str
    data: object = None
    opts: JobOptions | None = None
    children: "Sequence[FlowJob]" = ()


class FlowProducer:
    """Adds flows. Safe to share between tasks; close it, or use it as an async context manager.

        async with FlowProducer("redis://localhost") as flows:
            tree = await flows.add(
                FlowJob("book", "{studio}print", children=[
                    FlowJob("page", "{studio}paint", {"page": n}) for n in range(8)
                ])
            )

    All queues of a flow lie in one slot: one queue, or queues of one tag (`{studio}paint` and `{studio}print`).
    A parent is `waiting-children` until all its children have ended, and then takes its old place in its queue.

    redis: a URL, or a client of redis.asyncio, as for a `Queue`.
    default_job_options: by queue, for what the jobs' own `opts` do not name.
    deadline_s: how long a call is sent again while Redis is away, in seconds.
    durable: flows are answered when the server's append-only file is synced, as the adds of a `Queue`.

    Source: BullMQ's FlowProducer.
    """

    def __init__(
        self,
        redis: "str | Client" = "redis://localhost:6379",
        *,
        default_job_options: Mapping[str, JobOptions] | None = None,
        deadline_s: float = DEADLINE_S,
        durable: bool = False,
    ) -> None:
        check_bool("durable", durable)
        self._owns_client = isinstance(redis, str)
        self.client: Client = connect(redis) if isinstance(redis, str) else check_client(redis)
        self._defaults = dict(default_job_options or {})
        for queue, options in self._defaults.items():
            check_kind(f"default_job_options[{queue}]", options, JobOptions)
        self._deadline_s = deadline_s
        self._durable = durable
        self._registered_at: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, if this producer opened them."""
        if self._owns_client:
            await self.client.aclose()

    async def add(self, flow: FlowJob) -> JobNode:
        """Store a flow whole: at most 500 jobs in 20 levels and 16 MiB of data, all or nothing.

        When there is a job of the root's id already, the flow is left as it is there, and its root is `duplicated`.
        Raises `InvalidOption` before anything is sent, `FlowRefused` when another of its ids is taken or the root's
        own parent cannot take it, and `QueueFull` when one of the queues has no room, or its relay is far behind.
        """
        (tree,) = await self.add_bulk([flow])
        return tree

    async def add_bulk(self, flows: Sequence[FlowJob]) -> list[JobNode]:
        """Store several flows, all or nothing; the limits are those of `add`, for all of them together."""
        if not flows:
            return []
        with adding(str(getattr(flows[0], "queue", "")), "flow"):
            return await self._add(list(_checked(flows, self._defaults)))

    async def _add(self, nodes: "list[_Node]") -> list[JobNode]:
        scripts = self._scripts(nodes[0].queue)
        await self._register(scripts, {node.queue for node in nodes})
        entries = [FlowEntry(node.queue, node.id, node.parent, node.header_json(), node.data) for node in nodes]
        replies = await scripts.add_flow(new_token(), entries)
        trees: list[JobNode] = []
        for root, (is_new, created_at) in zip(_roots(nodes), replies, strict=True):
            there = None if is_new else await self._there(root)
            trees.append(there or _tree(nodes, root, created_at))
        return trees

    async def get_flow(self, queue: str, job_id: str, depth: int = 10, max_children: int = 20) -> JobNode | None:
        """The tree below a job; see `Queue.get_flow`."""
        return await read_flow(self._scripts(queue), job_id, depth, max_children)

    def _scripts(self, queue: str) -> Scripts:
        return Scripts(self.client, Keys(queue), self._deadline_s, durable=self._durable)

    async def _register(self, scripts: Scripts, queues: set[str]) -> None:
        now = time.monotonic()
        names = [name for name in queues if now - self._registered_at.get(name, -math.inf) >= REGISTER_AGAIN_S]
        if names:
            await scripts.retrying("SADD", lambda: self.client.sadd(QUEUES_KEY, *sorted(names)))
            self._registered_at.update(dict.fromkeys(names, now))

    async def _there(self, root: "_Node") -> JobNode | None:
        found = await self.get_flow(root.queue, root.id, MAX_DEPTH, MAX_JOBS)
        return found and JobNode(found.job.replace(duplicated=True), found.children)


class _Node(NamedTuple):
    """A checked job of a flow; `parent` is its parent's place, from 1, 0 for a root."""

    place: int
    parent: int
    queue: str
    id: str
    header: Header
    data: bytes

    def header_json(self) -> bytes:
        return msgspec.json.encode(self.header)


def _checked(flows: Sequence[FlowJob], defaults: Mapping[str, JobOptions]) -> Iterator[_Node]:
    """All jobs of the flows, each flow from its root on, parents before their children."""
    seen: set[tuple[str, str]] = set()
    tag: str | None = None
    place, data_bytes = 0, 0
    for root_number, root in enumerate(flows):
        todo: list[tuple[FlowJob, str, int, Parent | None, int]] = [(root, f"flows[{root_number}]", 0, None, 1)]
        while todo:
            flow, path, parent_place, parent, level = todo.pop()
            with _told(path):
                if level > MAX_DEPTH:
                    raise InvalidOption("children", f"are on level {level}; a flow has at most {MAX_DEPTH}")
                node = _node(flow, place := place + 1, parent_place, parent, defaults)
                if place > MAX_JOBS:
                    raise InvalidOption("children", f"are too many: a call adds at most {MAX_JOBS} jobs")
                tag = _same_tag(node, tag)
                data_bytes += len(node.data)
                if data_bytes > MAX_BYTES:
                    raise InvalidOption("data", f"are too much: a call adds at most {MAX_BYTES} bytes of JSON")
                if (node.queue, node.id) in seen:
                    raise InvalidOption("opts.id", f"{node.id} is there twice")
                seen.add((node.queue, node.id))
            yield node
            below = Parent(node.queue, node.id)
            for number, child in reversed(list(enumerate(flow.children))):
                todo.append((child, f"{path}.children[{number}]", node.place, below, level + 1))


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Name the place in the flow that a refused option stands at."""
    try:
        yield
    except InvalidOption as problem:
        raise InvalidOption(f"{path}.{problem.field}", problem.problem) from None


def _node(
    flow: FlowJob, place: int, parent_place: int, parent: Parent | None, defaults: Mapping[str, JobOptions]
) -> _Node:
    if not isinstance(flow, FlowJob):
        raise InvalidOption("flow", "must be a FlowJob")
    if not isinstance(flow.children, Sequence):
        raise InvalidOption("children", "must be a list of FlowJobs")
    queue = check_queue_name(flow.queue)
    check_kind("opts", flow.opts, JobOptions)
    options = (flow.opts or JobOptions()).over(defaults.get(queue) or JobOptions())
    if options.deduplication is not None:
        raise InvalidOption("opts.deduplication", "does not go with flows, whose jobs wait for each other")
    if parent is not None:
        if options.parent is not None:
            raise InvalidOption("opts.parent", "is for a root only; the others have their place in the flow")
        options = msgspec.structs.replace(options, parent=parent)
    header = msgspec.structs.replace(options.header(flow.name), children=len(flow.children))
    job_id = new_job_id() if options.id is None else options.id
    return _Node(place, parent_place, queue, job_id, header, encode_json("data", flow.data, MAX_DATA_BYTES))


def _same_tag(node: _Node, tag: str | None) -> str:
    queues = [node.queue] if node.header.parent is None else [node.queue, node.header.parent.queue]
    for queue in queues:
        if tag is not None and Keys(queue).tag != tag:
            raise InvalidOption("queue", f"{queue} has another tag than {tag}: one call cannot change both")
        tag = Keys(queue).tag
    assert tag is not None
    return tag


def _roots(nodes: Sequence[_Node]) -> list[_Node]:
    return [node for node in nodes if node.parent == 0]


def _tree(nodes: Sequence[_Node], root: _Node, created_at: int) -> JobNode:
    """The flow as it was stored."""
    made: dict[int, JobNode] = {root.place: JobNode(_job(root, created_at), [])}
    for node in nodes[root.place :]:
        if node.parent == 0:
            break
        made[node.place] = JobNode(_job(node, created_at), [])
        made[node.parent].children.append(made[node.place])
    return made[root.place]


def _job(node: _Node, created_at: int) -> Job:
    header = node.header
    is_delayed = header.delay_ms > 0 and not header.children
    state = JobState.DELAYED if is_delayed else JobState.WAITING
    return Job(
        queue=node.queue,
        id=node.id,
        header=header,
        data=msgspec.Raw(node.data),
        state=JobState.WAITING_CHILDREN if header.children else state,
        created_at=created_at,
        priority=header.priority,
        due_at=created_at + header.delay_ms if is_delayed else None,
        pending_children=header.children or None,
    )
