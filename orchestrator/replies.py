"""From what a script answers to jobs, claims and words."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from orchestrator.job import CancelRequest, Header, Job, JobError, JobState


class Added(NamedTuple):
    """What an add came to: "added", "duplicated" or "deduplicated"; and the job that is there now.

    job_id: "" where it is the caller's own, just added.
    """

    outcome: str
    state: JobState
    created_at: int
    job_id: str

    @property
    def is_new(self) -> bool:
        """Whether the call made the job."""
        return self.outcome == "added"


_STATES = {state.encode(): state for state in JobState}


@functools.lru_cache(maxsize=128)
def read_added(reply: bytes) -> Added:
    """The answer of `add_jobs` for one job; of those that come together nearly all are alike."""
    outcome, state, created_at, *job_id = reply.split(b" ")
    return Added(outcome.decode(), _STATES[state], int(created_at), b"".join(job_id).decode())


def read_cancel(text: bytes) -> CancelRequest | None:
    """A request to stop; empty = none."""
    return msgspec.json.decode(text, type=CancelRequest) if text else None


def read_claimed(queue: str, head: bytes, definition: bytes) -> Job:
    """The job of a claim, as `move_to_active` answers it; `lease` is the claim's."""
    line, _, rest = head[6:].partition(b"\n")
    job_id, lease, started_at, *more = line.split(b" ")
    header_text, _, data = definition.partition(b"\n")
    header = msgspec.json.decode(header_text, type=Header)
    run, started, made, stalled, priority = map(int, more) if more else (1, 1, 0, 0, header.priority)
    return Job(
        queue=queue,
        id=job_id.decode(),
        header=header,
        data=msgspec.Raw(data),
        state=JobState.ACTIVE,
        created_at=int.from_bytes(head[:6], "little"),
        run=run,
        priority=priority,
        attempts_started=started,
        attempts_made=made,
        stalled=stalled,
        started_at=int(started_at),
        lease=lease.decode(),
        **(_read_past(rest) if rest else {}),
    )


def _read_past(rest: bytes) -> dict[str, Any]:
    """What few claims have."""
    cancel, error, checkpoint = rest.split(b"\n", 2)
    return {
        "cancel": read_cancel(cancel),
        "error": msgspec.json.decode(error, type=JobError) if error else None,
        "checkpoint": _value(checkpoint or None),
    }


def read_job(queue: str, reply: Sequence[bytes]) -> Job:
    """A job, as the getters answer it: id, definition, created_at, then the record as name, value, name, value …"""
    job_id, definition, created_at, *flat = reply
    header_text, _, data = definition.partition(b"\n")
    header = msgspec.json.decode(header_text, type=Header)
    record = {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    result, error, cancel = record.get("result"), record.get("error"), record.get("cancel", b"")
    return Job(
        queue=queue,
        id=job_id.decode(),
        header=header,
        data=msgspec.Raw(data),
        state=JobState(record["state"].decode()),
        created_at=int(created_at),
        run=int(record["run"]),
        priority=int(record.get("priority", header.priority)),
        attempts_started=int(record.get("started", 0)),
        attempts_made=int(record.get("made", 0)),
        stalled=int(record.get("stalled", 0)),
        due_at=_number(record.get("due_at")),
        started_at=_number(record.get("started_at")),
        finished_at=_number(record.get("finished_at")),
        expires_at=_number(record.get("expires_at")),
        worker=_text(record.get("worker")),
        lease=_text(record.get("lease")),
        progress=_value(record.get("progress")),
        preview=_value(record.get("preview")),
        checkpoint=_value(record.get("checkpoint")),
        result=None if result is None else msgspec.Raw(result),
        error=None if error is None else msgspec.json.decode(error, type=JobError),
        stack=_text(record.get("stack")),
        reason=_text(record.get("reason")),
        cancel=read_cancel(cancel),
        pending_children=_number(record.get("children")),
    )


def _value(text: bytes | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _number(text: bytes | None) -> int | None:
    return None if text is None else int(text)
