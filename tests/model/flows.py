"""Calls of flows: trees are added, read, and taken apart."""

from collections.abc import Sequence
from typing import Any

from orchestrator.errors import FlowRefused, JobNotFound
from orchestrator.scripts import FlowEntry
from tests.model.adding import Adding, header_of
from tests.model.job import ModelJob
from tests.model.reading import read_job
from tests.model.steering import Steering


class Flows(Adding, Steering):
    """What adds trees of jobs, and what their parents ask."""

    def add_flow(self, token: str, entries: Sequence[FlowEntry]) -> list[tuple[bool, int]]:
        new: list[bool] = []
        for entry in entries:
            new.append(new[entry.parent - 1] if entry.parent else self._is_new_root(token, entry))
            if entry.parent and new[-1] and entry.job_id in self.jobs:
                raise FlowRefused
        self._refuse_places([entry for entry, is_new in zip(entries, new, strict=True) if is_new])
        replies: list[tuple[bool, int]] = []
        for entry, is_new in zip(entries, new, strict=True):
            before = None if is_new or entry.parent else self.added_before(token, entry.job_id)
            reply = self.store(token, entry.job_id, entry.header, entry.data) if is_new else before
            if reply and not entry.parent:
                replies.append((reply[0] == "added", reply[2]))
            if is_new and not entry.parent:
                self.link_child(self.jobs[entry.job_id])
        for entry, is_new in zip(entries, new, strict=True):
            if is_new and entry.parent:
                self.jobs[entries[entry.parent - 1].job_id].family[f"{entry.queue}:{entry.job_id}"] = "p"
        return replies

    def get_dependencies(self, job_id: str, cursor: str, count: int, kinds: str) -> Any:
        """A family of the model is small, so it comes whole."""
        family = self._known(job_id).family
        return "0", [(name, text.encode()) for name, text in family.items() if text[0] in kinds]

    def get_dependencies_count(self, job_id: str) -> tuple[int, ...]:
        kinds = [text[0] for text in self._known(job_id).family.values()]
        return tuple(kinds.count(kind) for kind in "pcfi")

    def get_children(self, start: int, count: int, parents: Sequence[tuple[str, str]]) -> Any:
        return [self._children_page(job_id, start, start + count) for _, job_id in parents]

    def remove_child_dependency(self, token: str, job_id: str) -> bool:
        return bool(self.once(token, lambda: str(int(self.drop_child(self._known(job_id))))) == "1")

    def remove_unprocessed_children(self, token: str, job_id: str) -> tuple[int, bool]:
        def effect() -> str:
            children = [job for job in self.children_of(self._known(job_id)) if job.finished_at is None]
            families = [[*self.descendants(child), child] for child in children]
            idle = [family for family in families if all(job.state != "active" for job in family)]
            for family in idle:
                for job in family[:-1]:
                    self.take_out(job)
                self.remove_record(family[-1])
            return f"{len(idle)} 0"

        return int(self.once(token, effect).split(" ")[0]), False

    def _children_page(self, job_id: str, first: int, stop: int) -> tuple[int, list[Any]]:
        parent = self.jobs.get(job_id)
        names = [*parent.family][first:stop] if parent is not None else []
        return len(names), [read_job(job) for job in self.children_of(parent, names)] if parent is not None else []

    def _is_new_root(self, token: str, entry: FlowEntry) -> bool:
        parent = header_of(entry.header).parent
        if parent:
            self.refuse_stranger(parent.id, entry.job_id)
        gone = self.memory.tombstones.get(entry.job_id)
        is_known = entry.job_id in self.jobs or (gone is not None and gone["token"] == token)
        if parent and not is_known:
            self.refuse_parent(parent.id)
        return not is_known

    def _refuse_places(self, entries: Sequence[FlowEntry]) -> None:
        if not entries:
            return
        self.refuse_closing()
        self.refuse_outbox()
        groups = [group for entry in entries if (group := header_of(entry.header).group)]
        self.refuse(len(entries), {group: groups.count(group) for group in groups})

    def _known(self, job_id: str) -> ModelJob:
        if job_id not in self.jobs:
            raise JobNotFound
        return self.jobs[job_id]
