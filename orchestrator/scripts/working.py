"""A worker's calls: claiming, telling, ending."""

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.job import CancelRequest, Job
from orchestrator.replies import read_cancel, read_claimed
from orchestrator.scripts.call import ScriptCaller
from orchestrator.scripts.connection import Client

PREVIEW_MS = 600_000


class Claim(NamedTuple):
    """A job and the lease on it."""

    job: Job
    lease: str


class Finish(NamedTuple):
    """How an attempt ended; `move_to_finished` says what there is. `pause_ms` −1 = no further attempt."""

    job_id: str
    lease: str
    outcome: str
    content: bytes
    pause_ms: int = -1


class Claims(NamedTuple):
    """What a claiming call brought.

    sleep_ms: how long a worker without work may sleep, −1 = until woken.
    is_deaf: waking this worker before is of no use.
    """

    outcomes: list[str]
    claims: list[Claim]
    sleep_ms: int
    is_deaf: bool = False


class Report(NamedTuple):
    """What a running attempt tells: `name` "" = progress, else a milestone; `content` is JSON."""

    number: int
    name: str
    content: bytes
    preview: bytes = b""


class WorkingScripts(ScriptCaller):
    """What a worker does with jobs."""

    async def move_to_active(
        self, token: str, lane: str, worker: str, lease_ms: int, interval_ms: int, slots: int, wishes: bytes = b""
    ) -> Claims:
        """Claim up to `slots` jobs; `wishes` as the script's header says."""
        reply = await self._run("move_to_active", token, lane, worker, lease_ms, interval_ms, slots, wishes)
        return self._claims([], *reply)

    async def move_to_active_when_woken(self, blocking: Client, block_s: float, *args: str | bytes | int) -> Claims:
        """The same, with its arguments, once the marker wakes us or `block_s` are over; one try."""
        return self._claims([], *await self._run_when_woken(blocking, block_s, "move_to_active", *args))

    async def move_to_finished(
        self,
        token: str,
        lane: str,
        worker: str,
        lease_ms: int,
        interval_ms: int,
        slots: int,
        finishes: Sequence[Finish],
        wishes: bytes = b"",
        keep: bytes = b"",
    ) -> Claims:
        """End attempts and claim up to `slots` jobs in the same round trip.

        keep: for how long jobs are kept that do not say so themselves, with the names of a header; empty = for ever.
        """
        parts: list[str | bytes | int] = [part for finish in finishes for part in finish]
        if keep:
            parts.append(keep)
        reply = await self._run("move_to_finished", token, lane, worker, lease_ms, interval_ms, slots, wishes, *parts)
        return self._claims(*reply)

    def _claims(self, outcomes: list[bytes], claims: list[bytes], sleep_ms: bytes, deaf: bytes) -> Claims:
        held = [_claim(self.keys.queue, *claim) for claim in zip(claims[::2], claims[1::2], strict=True)]
        return Claims([outcome.decode() for outcome in outcomes], held, int(sleep_ms), deaf == b"1")

    async def extend_locks(
        self, lease_ms: int, cancel_ms: int, held: Sequence[tuple[str, str]]
    ) -> list[CancelRequest | bool]:
        """Renew leases; for each: True (renewed), False (lost), or the request to stop (renewed)."""
        parts = [part for pair in held for part in pair]
        replies = await self._run("extend_locks", lease_ms, cancel_ms, *parts)
        return [False if reply == b"LEASE_LOST" else read_cancel(reply) or True for reply in replies]

    async def update_progress(self, job_id: str, lease: str, report: Report) -> CancelRequest | None:
        """Record a report; the answer says whether to stop."""
        number, name, content, preview = report
        reply = await self._run("update_progress", job_id, lease, number, name, content, preview, PREVIEW_MS)
        return read_cancel(reply)

    async def save_checkpoint(self, job_id: str, lease: str, number: int, value: bytes) -> CancelRequest | None:
        """Store how far a job has come; the answer says whether to stop."""
        return read_cancel(await self._run("save_checkpoint", job_id, lease, number, value))

    async def add_log(self, job_id: str, lease: str, number: int, line: str) -> CancelRequest | None:
        """Add a line to the job's log; the answer says whether to stop."""
        return read_cancel(await self._run("add_log", job_id, lease, number, line))


def _claim(queue: str, head: bytes, definition: bytes) -> Claim:
    job = read_claimed(queue, head, definition)
    return Claim(job, job.lease or "")
