"""A job in the hands of its processor: what it is, what it tells, and whether it should stop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from orchestrator.children import Family
from orchestrator.errors import LeaseLost, StoreUnavailable
from orchestrator.held_job import HeldJob
from orchestrator.job import MAX_NAME_CHARS, CancelRequest, Job, check_text, encode_json
from orchestrator.scripts import Claim, Report, Scripts

MAX_REPORT_BYTES = 2048
MAX_LINE_CHARS = 10_000
RETRY_S = 0.5
THINNING = 0.005
"""Progress comes further apart the longer an attempt runs: once per half a percent of the time it has taken.

With the usual 100 ms that is 200 events in the first 20 s, then 200 · ln(t / 20 s): 880 after 10 minutes, 1,900 after
a day. So the history stays small however long a job runs.
"""


class ActiveJob(HeldJob, Family):
    """What a processor gets.

    cancel_requested: set soon after somebody canceled the job; stop, and raise `JobCanceled`.
    lost: set when another worker may have the job; stop, nothing will be recorded.
    on_stop: for the worker; called when one of the two is set.
    """

    def __init__(self, claim: Claim, scripts: Scripts, progress_interval_ms: int = 100) -> None:
        self.job: Job = claim.job
        self.lease = claim.lease
        self.cancel: CancelRequest | None = None
        self.cancel_requested = asyncio.Event()
        self.lost = asyncio.Event()
        self.on_stop: Callable[[], None] | None = None
        self._scripts = scripts
        self._interval_s = progress_interval_ms / 1000
        self._sending = asyncio.Lock()
        self._number = 0
        self._checkpoint: Any = claim.job.checkpoint
        self._pending: bytes | None = None
        self._reporter: asyncio.Task[None] | None = None
        self._sent_at = 0.0
        self._began = time.monotonic()
        if claim.job.cancel is not None:
            self.ask_to_stop(claim.job.cancel)

    @property
    def checkpoint_value(self) -> Any:
        """What the newest `checkpoint` of this job stored, in this attempt or an earlier one; None before the first."""
        return self._checkpoint

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────

    def report_progress(self, value: Any) -> None:
        """Tell progress soon: the newest value wins, at most one in `progress_interval_ms`. Never waits."""
        self._pending = _encode("progress", value)
        if self._reporter is None or self._reporter.done():
            self._reporter = asyncio.create_task(self._send_pending(), name=f"progress {self.id}")

    async def update_progress(self, value: Any) -> None:
        """Tell progress now, in order. `value` is any JSON of at most 2 KiB. Raises `LeaseLost`."""
        self._pending = None
        await self._report("", _encode("progress", value))

    async def milestone(self, name: str, data: Any = None) -> None:
        """Tell that something was reached, after any pending progress. Raises `LeaseLost`."""
        check_text("name", name, MAX_NAME_CHARS)
        await self._report(name, _encode("data", data))

    async def set_preview(self, picture: bytes, data: Any = None) -> None:
        """Show a preview picture (a few kB) and tell the milestone `preview_ready`. Raises `LeaseLost`."""
        await self._report("preview_ready", _encode("data", data), picture)

    async def checkpoint(self, value: Any) -> None:
        """Store how far this job has come, any JSON of at most 2 KiB: its next attempt begins with `checkpoint_value`.

        Whatever ends this attempt: an error, a lost worker, or the wish to go on later. Raises `LeaseLost`.
        """
        content = _encode("checkpoint", value)
        await self._send(lambda number: self._scripts.save_checkpoint(self.id, self.lease, number, content))
        self._checkpoint = msgspec.json.decode(content)

    async def log(self, line: str) -> None:
        """Add a line to the job's own log. Raises `LeaseLost`."""
        text = line[:MAX_LINE_CHARS].encode("utf-8", "replace").decode()
        await self._send(lambda number: self._scripts.add_log(self.id, self.lease, number, text))

    # ── for the worker ───────────────────────────────────────────────────────────────────────────────

    def ask_to_stop(self, cancel: CancelRequest) -> None:
        """The job was canceled."""
        self.cancel = cancel
        self.cancel_requested.set()
        if self.on_stop is not None:
            self.on_stop()

    def lose(self) -> None:
        """Another worker may have the job."""
        self.lost.set()
        if self.on_stop is not None:
            self.on_stop()

    @property
    def has_more_to_tell(self) -> bool:
        """Whether `close` has something to do."""
        return self._reporter is not None or self._sending.locked()

    async def close(self) -> None:
        """Tell what is still pending, then nothing more."""
        if not self.lost.is_set():
            await self._report("", b"")
        async with self._sending:  # never cut off a call on its way
            if self._reporter is not None:
                self._reporter.cancel()

    async def _send_pending(self) -> None:
        while self._pending is not None:
            interval_s = max(self._interval_s, THINNING * (time.monotonic() - self._began))
            await asyncio.sleep(max(self._sent_at + interval_s - time.monotonic(), 0))
            try:
                await self._report("", b"")
            except LeaseLost:
                return

    async def _report(self, name: str, content: bytes, preview: bytes = b"") -> None:
        """Send pending progress (if any), then this report; an empty progress report sends only the pending one."""

        async def send(name: str, content: bytes, preview: bytes) -> None:
            self._number += 1
            report = Report(self._number, name, content, preview)
            await self._until_answered(lambda: self._scripts.update_progress(self.id, self.lease, report))

        async with self._sending:
            pending, self._pending = self._pending, None
            if pending is not None:
                self._sent_at = time.monotonic()
                await send("", pending, b"")
            if content:
                await send(name, content, preview)

    async def _send(self, call: Callable[[int], Awaitable[CancelRequest | None]]) -> None:
        async with self._sending:
            self._number += 1
            number = self._number
            await self._until_answered(lambda: call(number))

    async def _until_answered(self, call: Callable[[], Awaitable[CancelRequest | None]]) -> None:
        """An outage of Redis does not end an attempt: go on until the call is answered or the lease is lost."""
        while not self.lost.is_set():
            try:
                cancel = await call()
            except LeaseLost:
                self.lose()
                raise
            except StoreUnavailable:
                await asyncio.sleep(RETRY_S)
                continue
            if cancel is not None and self.cancel is None:
                self.ask_to_stop(cancel)
            return
        raise LeaseLost(f"job {self.id} is not held any more")


def _encode(field: str, value: Any) -> bytes:
    return encode_json(field, value, MAX_REPORT_BYTES)
