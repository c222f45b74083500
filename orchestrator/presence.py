"""Workers as others see them: what a heartbeat says, and what is read of it."""

import os
import socket
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, TypeAlias

import msgspec

from orchestrator.errors import InvalidOption
from orchestrator.job import encode_json

ALIVE_MS = 15_000
"""How long a worker counts as there after a heartbeat."""
MAX_INFO_BYTES = 2048
MAX_JOB_IDS = 100

Info: TypeAlias = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""What a worker's user tells about it (device, model, VRAM …), once or anew for each heartbeat."""


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker tells about itself. `job_ids` are of the jobs it runs, the first 100."""

    id: str
    name: str = ""
    queue: str = ""
    concurrency: int = 0
    active: int = 0
    job_ids: tuple[str, ...] = ()
    host: str = ""
    pid: int = 0
    version: str = ""
    info: dict[str, Any] = {}


class WorkerInfo(WorkerRecord, frozen=True, kw_only=True):
    """A worker that is there. Instants are ms since the epoch, by the server's clock.

    id: its own, new with each start; name: as it was given. active: how many of its `concurrency` slots have a job,
    job_ids: which, the first 100. host, pid, version: where it runs, of what version. info: what it tells of itself.
    started_at, last_seen_at: its start, and its newest heartbeat; they come every 5 s.
    """

    started_at: int
    last_seen_at: int


def host_facts() -> dict[str, Any]:
    """Where this process runs, and of what version it is: the fields that stay the same."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "version": _version()}


def check_info(info: "Info | None") -> dict[str, Any]:
    """The mapping as plain JSON values. Raises `InvalidOption` for what is no mapping or no JSON of at most 2 KiB."""
    told = info() if callable(info) else info
    if told is None:
        return {}
    if not isinstance(told, Mapping):
        raise InvalidOption("info", "must be a mapping, or a function that returns one")
    plain: dict[str, Any] = msgspec.json.decode(encode_json("info", dict(told), MAX_INFO_BYTES))
    return plain


def read_worker(last_seen_at: bytes, text: bytes) -> WorkerInfo:
    """A worker as `get_workers` answers it: when it was last heard of, and `<started_at> <record>`."""
    started_at, _, record = text.partition(b" ")
    told = msgspec.structs.asdict(msgspec.json.decode(record, type=WorkerRecord))
    return WorkerInfo(**told, started_at=int(started_at), last_seen_at=int(float(last_seen_at)))


def _version() -> str:
    try:
        return metadata.version("kargah")
    except metadata.PackageNotFoundError:  # from a source tree that is not installed
        return ""
