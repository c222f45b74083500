"""Moving and removing many jobs: a bounded number at a time, so that it may be interrupted and done again."""

from orchestrator.errors import InvalidOption, WrongState
from orchestrator.job import JobState, check_bool, check_int
from orchestrator.keys import check_group_id, check_job_id, new_token
from orchestrator.queue.reading import Reading
from orchestrator.storage import Storage

CHUNK = 100
MAX_COUNT = 2**53
CLEANABLE = ("waiting", "delayed", "completed", "failed", "canceled")
CLOSING_MS = 60_000
"""How long adds are refused after each step of `obliterate`: if its process dies, the queue takes jobs again."""
KEYS_AT_ONCE = 500
ROUNDS = 5


class Cleaning(Reading):
    """What an operator does to many jobs."""

    async def promote_jobs(self, count: int | None = None) -> int:
        """End the delay of those that are due soonest (None: of all that are delayed now); returns how many."""
        check_count(count)
        left = (await self.get_counts())["delayed"] if count is None else count
        done = 0
        while done < left:
            promoted = await self.scripts.promote_jobs(new_token(), min(CHUNK, left - done))
            done += promoted
            if promoted == 0:
                break
        return done

    async def retry_jobs(
        self, state: JobState | str = JobState.FAILED, count: int | None = None, before: int | None = None
    ) -> int:
        """New runs of jobs that finished in `state`, the oldest first; returns how many.

        before: only of those that finished at this instant (ms) or earlier; None = now, so a job that fails again
        is not retried again.
        """
        check_count(count)
        if state not in ("completed", "failed", "canceled"):
            raise InvalidOption("state", "must be completed, failed or canceled")
        if before is not None:
            check_int("before", before, 0, MAX_COUNT)
        until_at = "" if before is None else str(before)
        done = 0
        while count is None or done < count:
            limit = CHUNK if count is None else min(CHUNK, count - done)
            retried, looked, until_at = await self.scripts.retry_jobs(new_token(), str(state), limit, until_at)
            done += retried
            if looked < limit:
                break
        return done

    async def drain(self, *, delayed: bool = False) -> int:
        """Remove the jobs that wait now, and with `delayed` those too; others stay. Returns how many.

        Source: BullMQ's drain.
        """
        check_bool("delayed", delayed)
        counts = await self.get_counts()
        done = 0
        for state in ("waiting", "delayed") if delayed else ("waiting",):
            left = counts[state]
            while left > 0 and (removed := await self.scripts.drain(new_token(), state, min(CHUNK, left))):
                left -= removed
                done += removed
        return done

    async def clean(self, grace_ms: int, limit: int | None = None, state: JobState | str = JobState.COMPLETED) -> int:
        """Remove jobs of a state that are older than `grace_ms`, since their end or else since their add.

        At most `limit`; the oldest finished ones first, waiting ones as they would start. Returns how many. Running
        jobs are not cleaned: what stalled comes back by itself.
        """
        check_int("grace_ms", grace_ms, 0, MAX_COUNT)
        check_count(limit, "limit")
        if state not in CLEANABLE:
            raise InvalidOption("state", f"must be one of {', '.join(CLEANABLE)}")
        start, done, until_at = 0, 0, ""
        while limit is None or done < limit:
            size = CHUNK if limit is None else min(CHUNK, limit - done)
            token = new_token()
            removed, kept, until_at = await self.scripts.clean(token, str(state), start, size, grace_ms, until_at)
            done += removed
            start += kept
            if removed + kept == 0:
                break
        return done

    async def obliterate(self, *, force: bool = False, storage: Storage | None = None) -> int:
        """Remove the queue: all jobs, schedules, limits, events, every key. Returns how many jobs it had.

        The queue is paused first and takes no jobs while this goes on. Jobs that run are a `WrongState`, unless
        `force`: then their workers lose them. Interrupted, it may be called again.

        Files of the jobs: with a `storage` they are deleted here; without, the key `sweep` names them to the duty that
        has the storage, and goes with the last of them. A worker that still serves the queue registers anew.
        """
        check_bool("force", force)
        epoch = await self._epoch()
        removed = 0
        for _ in range(ROUNDS):
            if epoch is None:
                break
            while count := await self.scripts.obliterate(epoch, force=force, limit=CHUNK, closing_ms=CLOSING_MS):
                removed += count
            if storage is not None:
                await self._remove_files(storage)
            if await self._forget_keys(epoch):
                break
        else:
            raise WrongState(f"jobs came to the queue {self.name} while it was obliterated; it is paused, try again")
        return removed

    async def trim_events(self, count: int) -> int:
        """Keep only the newest entries of the queue's stream, of up to eight events each; returns how many went."""
        check_int("count", count, 0, 10_000)
        return await self.scripts.trim_events(count)

    async def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """The id of the job that holds a deduplication id."""
        key = f"{self.keys.prefix}dedup:{check_group_id(deduplication_id, 'deduplication.id')}"
        value: bytes | None = await self.scripts.retrying("GET", lambda: self.client.get(key))
        return None if value is None else value.decode().partition(" ")[0]

    async def remove_deduplication_key(self, deduplication_id: str, job_id: str | None = None) -> bool:
        """Let the next job of a deduplication id pass; with `job_id` only if that job holds it. Whether it was held."""
        check_group_id(deduplication_id, "deduplication.id")
        owner = "" if job_id is None else check_job_id(job_id)
        return await self.scripts.remove_deduplication_key(new_token(), deduplication_id, owner)

    async def _epoch(self) -> str | None:
        (epoch,) = await self.scripts.get_meta("epoch")
        return epoch if epoch != "0" else None

    async def _remove_files(self, storage: Storage) -> None:
        while paths := await self.scripts.get_due_files(CHUNK):
            for path in paths:
                await storage.remove_tree(path)
            await self.scripts.forget_files(paths)

    async def _forget_keys(self, epoch: str) -> bool:
        """Delete all keys, `meta` last; False when the queue got jobs meanwhile."""
        for _ in range(ROUNDS):
            cursor, found = 0, 0
            while True:
                cursor, names = await self._scan(cursor)
                for start in range(0, len(names), KEYS_AT_ONCE):
                    found += 1
                    if await self.scripts.forget_keys(epoch, names[start : start + KEYS_AT_ONCE]) < 0:
                        return False
                if cursor == 0:
                    break
            if not found:
                break
        if await self.scripts.forget_keys(epoch, ["meta"]) < 0:
            return await self._epoch() != epoch  # so it was this call, whose answer was lost
        return True

    async def _scan(self, cursor: int) -> tuple[int, list[str]]:
        match = f"{self.keys.prefix}*"
        reply = await self.scripts.retrying("SCAN", lambda: self.client.scan(cursor, match=match, count=1000))
        names = [key.decode().removeprefix(self.keys.prefix) for key in reply[1]]
        return int(reply[0]), [name for name in names if name not in ("meta", "sweep")]


def check_count(count: object, field: str = "count") -> None:
    """Raise `InvalidOption` unless `count` is None or a whole number."""
    if count is not None:
        check_int(field, count, 0, MAX_COUNT)
