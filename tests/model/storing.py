"""How a job is stored, and who holds its deduplication key."""

from typing import NamedTuple

from orchestrator.errors import GroupFull, QueueFull
from orchestrator.job import JobState
from tests.model.families import Families
from tests.model.job import FINISHED, ModelJob

Added = tuple[str, JobState, int, str]
NO_END = -1


class Holder(NamedTuple):
    """Who holds a key: a job, or one that has ended and whose key lives on (`job` is None)."""

    id: str
    state: str
    created_at: int
    job: ModelJob | None


class Storing(Families):
    """What adds a job, whoever asks for it."""

    def store(self, token: str, job_id: str, header: bytes, data: bytes) -> Added:
        self.open()
        for state in FINISHED:
            if job_id in self.expires[state]:
                self.leave_state(job_id, state)
        job = self.jobs[job_id] = ModelJob(job_id, header + b"\n" + data, self.now, token)
        self.new_sequence(job)
        if job.header.children:
            job.children, job.delay_after = job.header.children, job.header.delay_ms or None
            self.park(job)
        elif job.header.delay_ms:
            self.delay(job, self.now + job.header.delay_ms)
        else:
            self.wait(job)
        if job.header.expires_ms:
            self.deadlines[job_id] = self.now + job.header.expires_ms
        if job.header.deduplication:
            self.hold_key(job)
        self.journal.added(self.now, job)
        self.count("added")
        return "added", JobState(job.state), self.now, ""

    def refuse(self, more: int, by_group: dict[str, int]) -> None:
        """Raise what an add without room for `more` jobs is refused with."""
        most = self.limits.max_waiting
        if most is not None and len(self.of("waiting", "delayed", "waiting-children")) + more > most:
            raise QueueFull
        self.refuse_groups(by_group)

    def refuse_groups(self, by_group: dict[str, int]) -> None:
        """The same for the groups alone."""
        for gid, count in by_group.items():
            most = self.group_limit(self.load_group(gid), "max_waiting")
            if most and len(self.waiting_of(gid)) + count > most:
                raise GroupFull

    # ── deduplication ────────────────────────────────────────────────────────────────────────────────

    def key_holder(self, name: str) -> Holder | None:
        if name not in self.dedup:
            return None
        job_id, *ended = self.dedup[name][0].split(" ")
        if ended:
            return Holder(job_id, ended[0], int(ended[1]), None)
        job = self.jobs.get(job_id)
        return None if job is None else Holder(job_id, job.state, job.created_at, job)

    def hold_key(self, job: ModelJob) -> None:
        """The key is the job's; its time goes on where it is running, unless each add begins it anew."""
        rule = job.header.deduplication
        assert rule
        ends_at = self.dedup.get(rule.id, ("", NO_END))[1]
        if rule.ttl_ms is None:
            ends_at = NO_END
        elif rule.extend or ends_at == NO_END:
            ends_at = self.now + rule.ttl_ms
        self.dedup[rule.id] = job.id, ends_at

    def hold_key_again(self, job: ModelJob) -> None:
        if rule := job.header.deduplication:
            holder = self.key_holder(rule.id)
            if holder is None or holder.id == job.id:
                self.hold_key(job)

    def free_key(self, job: ModelJob) -> None:
        """A job ends: a key with a time lives on and says so, another is free for the job that was kept back."""
        rule = job.header.deduplication
        if rule is None or self.dedup.get(rule.id, ("", 0))[0] != job.id:
            return
        if rule.ttl_ms is not None:
            ends_at = self.dedup[rule.id][1]
            self.dedup[rule.id] = f"{job.id} {job.state} {job.created_at}", ends_at
        else:
            del self.dedup[rule.id]
            self.store_next(rule.id)

    def store_next(self, name: str) -> None:
        kept = self.dedup_next.pop(name, None)
        if kept is None:
            return
        if kept["id"] in self.jobs:
            self.tell_queue("duplicated", job=kept["id"])
        else:
            self.store(kept["token"], kept["id"], kept["header"].encode(), kept["data"].encode())
