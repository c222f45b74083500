"""A worker made by hand: tests decide when each step of a job happens."""

import secrets

import msgspec

from orchestrator.generation import GenerationProgress, GenerationResult, Image
from orchestrator.job import JobError
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Finish, Report
from orchestrator.storage import Storage

LEASE_MS = 60_000
INTERVAL_MS = 1000
PNG = b"\x89PNG\r\n\x1a\n" + bytes(2000)


class Hand:
    """One claimed job."""

    def __init__(self, queue: Queue, claim: Claim) -> None:
        self.queue = queue
        self.job = claim.job
        self.lease = claim.lease
        self._reports = 0

    @classmethod
    async def claim(cls, queue: Queue) -> "Hand":
        """Claim the next job."""
        claims = await queue.scripts.move_to_active(secrets.token_hex(4), "hand:0", "hand", LEASE_MS, INTERVAL_MS, 1)
        return cls(queue, claims.claims[0])

    async def progress(self, step: int, steps: int = 20) -> None:
        """Report a denoising step."""
        content = GenerationProgress(phase="denoising", step=step, steps=steps, fraction=step / steps)
        await self._report("", msgspec.json.encode(content))

    async def milestone(self, name: str, data: object = None) -> None:
        """Report a milestone."""
        await self._report(name, msgspec.json.encode(data))

    async def preview(self, number: int, picture: bytes) -> None:
        """Store a preview."""
        data = {"number": number, "step": number * 5, "bytes": len(picture)}
        await self._report("preview_ready", msgspec.json.encode(data), picture)

    async def complete(self, storage: Storage, images: int = 1) -> None:
        """Store pictures and complete."""
        folder = f"{self.job.id}/{self.job.run}-{self.lease}"
        stored = []
        for index in range(images):
            path = f"{folder}/{index}.png"
            await storage.put(path, PNG + bytes([index]), "image/png")
            stored.append(Image(path=path, width=64, height=64, seed=index, bytes=len(PNG) + 1))
        result = GenerationResult(images=tuple(stored), load_ms=1, denoise_ms=2, decode_ms=3)
        await self.finish("completed", msgspec.json.encode(result))

    async def fail(self, message: str = "it broke", pause_ms: int = -1) -> None:
        """Fail for good, or until `pause_ms` from now."""
        error = JobError("transient", message)
        await self.finish("failed", msgspec.json.encode(error), pause_ms)

    async def finish(self, outcome: str, content: bytes, pause_ms: int = -1) -> None:
        """End the attempt."""
        finish = Finish(self.job.id, self.lease, outcome, content, pause_ms)
        await self.queue.scripts.move_to_finished(
            secrets.token_hex(4), "hand:0", "hand", LEASE_MS, INTERVAL_MS, 0, [finish]
        )

    async def _report(self, name: str, content: bytes, preview: bytes = b"") -> None:
        self._reports += 1
        report = Report(self._reports, name, content, preview)
        await self.queue.scripts.update_progress(self.job.id, self.lease, report)
