"""Calls that store jobs."""

from collections.abc import Sequence

from orchestrator.errors import FlowRefused, QueueFull
from orchestrator.job import Header, JobState
from orchestrator.scripts import adding
from tests.model.ending import Ending
from tests.model.job import ModelJob
from tests.model.storing import NO_END, Added, Holder


class Adding(Ending):
    """What adds jobs."""

    def add_jobs(
        self, token: str, jobs: Sequence[tuple[str, bytes, bytes]]
    ) -> list[Added | type[QueueFull] | type[FlowRefused]]:
        return [self._add_or_refuse(f"{token}.{number}", *job) for number, job in enumerate(jobs, 1)]

    def _add_or_refuse(
        self, token: str, job_id: str, header: bytes, data: bytes
    ) -> Added | type[QueueFull] | type[FlowRefused]:
        try:
            return self._add_for_itself(token, job_id, header, data)
        except (QueueFull, FlowRefused) as problem:
            return type(problem)

    def _add_for_itself(self, token: str, job_id: str, header: bytes, data: bytes) -> Added:
        parent = header_of(header).parent
        if parent:
            self.refuse_stranger(parent.id, job_id)
        before = self._told_before(token, header) or self.added_before(token, job_id)
        if before:
            return before
        self.refuse_closing()
        self.refuse_outbox()
        if parent:
            self.refuse_parent(parent.id)
        met = self._deduplicate(token, job_id, header, data)
        if met:
            return met
        group = header_of(header).group
        self.refuse(1, {group: 1} if group else {})
        reply = self.store(token, job_id, header, data)
        self.link_child(self.jobs[job_id])
        return reply

    def add_bulk(self, token: str, jobs: Sequence[tuple[str, bytes, bytes]]) -> list[Added]:
        is_repeat = self.memory.answers.get(token) is not None
        if not is_repeat:
            self.refuse_closing()
            self.refuse_outbox()
            self.refuse(*self._places_needed(jobs))
            self._refuse_parents(token, jobs)
            self.memory.answer(self.now, token, "added")
        return [self._add_one(f"{token}.{number}", *job, is_repeat) for number, job in enumerate(jobs, 1)]

    def fan_out(self, token: str, job_id: str, header: bytes, data: bytes) -> Added:
        before = self.added_before(token, job_id)
        if before:
            return before
        self.refuse_closing()
        return self.store(token, job_id, header, data)

    def remove_deduplication_key(self, token: str, name: str, owner: str) -> bool:
        before = self.memory.answers.get(token)
        if before is not None:
            return bool(before == "1")
        value = self.dedup.get(name, ("", 0))[0].split(" ")[0]
        is_held = bool(value) and owner in ("", value)
        if is_held:
            del self.dedup[name]
            self.store_next(name)
        self.memory.answer(self.now, token, str(int(is_held)))
        return is_held

    def _add_one(self, token: str, job_id: str, header: bytes, data: bytes, is_repeat: bool) -> Added:
        before = self._told_before(token, header) or self.added_before(token, job_id)
        if before:
            return before
        if is_repeat:
            return "duplicated", JobState.WAITING, self.now, job_id
        met = self._deduplicate(token, job_id, header, data)
        if met:
            return met
        reply = self.store(token, job_id, header, data)
        self.link_child(self.jobs[job_id])
        return reply

    def _refuse_parents(self, token: str, jobs: Sequence[tuple[str, bytes, bytes]]) -> None:
        for number, (job_id, text, _) in enumerate(jobs, 1):
            if parent := header_of(text).parent:
                self.refuse_stranger(parent.id, job_id)
                gone = self.memory.tombstones.get(job_id)
                is_known = job_id in self.jobs or (gone is not None and gone["token"] == f"{token}.{number}")
                if not is_known:
                    self.refuse_parent(parent.id)

    def _places_needed(self, jobs: Sequence[tuple[str, bytes, bytes]]) -> tuple[int, dict[str, int]]:
        count, by_group = 0, dict[str, int]()
        held: dict[str, str | None] = {}  # key → the state of its holder
        for job_id, text, _ in jobs:
            header = header_of(text)
            rule = header.deduplication
            if rule and rule.id not in held:
                holder = self.key_holder(rule.id)
                held[rule.id] = holder and (holder.state if holder.job else "ended")
            state = held[rule.id] if rule else None
            if job_id in self.jobs:
                continue
            count += state is None
            is_replaced = rule is not None and rule.replace and state == "delayed"
            if header.group and (state is None or is_replaced):
                by_group[header.group] = by_group.get(header.group, 0) + 1
            if rule and (state is None or header.delay_ms):
                held[rule.id] = "delayed" if header.delay_ms else "waiting"
        return count, by_group

    def _told_before(self, token: str, header: bytes) -> Added | None:
        memo = self.memory.answers.get(token)
        if header_of(header).deduplication is None or memo is None or not memo.startswith("deduplicated "):
            return None
        outcome, state, created_at, job_id = memo.split(" ")
        return outcome, JobState(state), int(created_at), job_id

    def added_before(self, token: str, job_id: str) -> Added | None:
        job = self.jobs.get(job_id)
        if job is not None:
            if job.token == token:
                return "added", JobState(job.state), job.created_at, ""
            if self.memory.answers.get(token) is None:
                self.memory.answer(self.now, token, "duplicated")
                self.tell_queue("duplicated", job=job_id)
            return "duplicated", JobState(job.state), job.created_at, job_id
        gone = self.memory.tombstones.get(job_id)
        if gone is not None and gone["token"] == token:
            return "added", JobState(gone["state"]), int(gone["created_at"]), ""
        return None

    def _deduplicate(self, token: str, job_id: str, header: bytes, data: bytes) -> Added | None:
        """What an add under a held key came to; None: its job is to be stored."""
        rule = header_of(header).deduplication
        if rule is None:
            return None
        holder = self.key_holder(rule.id)
        if holder is None:
            self.dedup.pop(rule.id, None)
            self.dedup_next.pop(rule.id, None)
            return None
        if rule.replace and holder.job is not None and holder.state == "delayed":
            group = header_of(header).group
            self.refuse_groups({group: 1} if group else {})
            self.dedup_next.pop(rule.id, None)
            self.remove_record(holder.job)
            self._tell_deduplicated(rule.id, job_id, holder.id)
            return self.store(token, job_id, header, data)
        lasts_as_its_job = self.dedup[rule.id][1] == NO_END
        if rule.extend and not lasts_as_its_job:
            self.dedup[rule.id] = self.dedup[rule.id][0], self.now + (rule.ttl_ms or 0)
        is_kept = rule.keep_last_if_active and lasts_as_its_job
        if is_kept and (holder.state == "active" or rule.id in self.dedup_next):
            self.dedup_next[rule.id] = {
                "token": token, "id": job_id, "header": header.decode(), "data": data.decode(),
            }  # fmt: skip
        self._tell_deduplicated(rule.id, holder.id, job_id)
        return self._met(token, holder)

    def _met(self, token: str, holder: Holder) -> Added:
        self.memory.answer(self.now, token, f"deduplicated {holder.state} {holder.created_at} {holder.id}")
        return "deduplicated", JobState(holder.state), holder.created_at, holder.id

    def _tell_deduplicated(self, name: str, kept: str, dropped: str) -> None:
        self.tell_queue("deduplicated", job=kept, deduplication_id=name, deduplicated_job=dropped)

    def refuse_closing(self) -> None:
        if (self.limits.closing_until or 0) > self.now:
            raise QueueFull

    def refuse_outbox(self) -> None:
        if len(self.journal.outbox) >= adding.OUTBOX_MAX:
            raise QueueFull


def header_of(text: bytes) -> Header:
    """A header as it is sent."""
    return ModelJob("", text + b"\n", 0, "").header
