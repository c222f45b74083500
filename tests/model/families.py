"""Parents and children: what a parent knows of each child, and who waits for whom."""

from collections.abc import Iterable
from typing import Any

import msgspec

from orchestrator.errors import FlowRefused
from tests.model.job import ModelJob
from tests.model.journal import json
from tests.model.state import State

MAX_COPIED_RESULT = 65_536
COUNTERS = {"p": "children", "c": "completed_children", "i": "ignored_children"}
PENDING_CHILDREN = (
    '{"kind":"poison","message":"the processor returned while children were pending: '
    'raise WaitingChildrenError to wait for them, or remove_unprocessed_children","details":{}}'
)


class Families(State):
    """A parent's `family` has an entry for each child: `p` pending, `c` and its result, `f` or `i` and its error."""

    def parent_of(self, child: ModelJob) -> ModelJob | None:
        """The parent, while it is there and knows of the child."""
        named = child.header.parent
        parent = self.jobs.get(named.id) if named else None
        return parent if parent is not None and self.name_of(child) in parent.family else None

    def name_of(self, child: ModelJob) -> str:
        return f"{self.queue}:{child.id}"

    def children_of(self, parent: ModelJob, names: Iterable[str] | None = None) -> list[ModelJob]:
        """Those that are still there, and still its own."""
        found = [self.jobs.get(name.partition(":")[2]) for name in (parent.family if names is None else names)]
        return [job for job in found if job is not None and job.header.parent and job.header.parent.id == parent.id]

    def descendants(self, job: ModelJob) -> list[ModelJob]:
        """All below it, level by level."""
        found = self.children_of(job)
        for member in found:
            found += self.children_of(member)
        return found

    # ── a parent waits ───────────────────────────────────────────────────────────────────────────────

    def waits_for_children(self, job: ModelJob) -> bool:
        return (job.children or 0) > 0 and not job.continued

    def park(self, job: ModelJob) -> None:
        job.state, job.parked_at = "waiting-children", self.now

    def wait_for_children(self, job: ModelJob, prev: str, **fields: Any) -> bool:
        """Instead of going back into the queue; whether it does."""
        if not self.waits_for_children(job):
            return False
        self.park(job)
        self.tell(job, "waiting-children", prev=prev, pending=job.children, **fields)
        return True

    def release_if_ready(self, parent: ModelJob) -> None:
        if parent.state != "waiting-children" or self.waits_for_children(parent):
            return
        due_at = parent.due_at
        if due_at is None and parent.delay_after is not None:
            due_at = self.now + parent.delay_after
        parent.delay_after = None
        if due_at is not None and due_at > self.now:
            self.delay(parent, due_at)
            self.tell(parent, "delayed", prev="waiting-children", due_at=due_at)
        else:
            self.wait(parent)
            self.tell(parent, "waiting", prev="waiting-children")

    def hold_back(self, parent: ModelJob) -> None:
        """Who only waits for a worker, or for a pause to end, waits for its children first."""
        prev = parent.state
        if prev in ("waiting", "delayed") and self.waits_for_children(parent):
            if prev == "waiting":
                self.leave_wait(parent)
            self.wait_for_children(parent, prev)

    # ── a child comes, ends, goes, comes again ───────────────────────────────────────────────────────

    def refuse_stranger(self, parent_id: str, job_id: str) -> None:
        job = self.jobs.get(job_id)
        if job is not None and not (job.header.parent and job.header.parent.id == parent_id):
            raise FlowRefused

    def refuse_parent(self, parent_id: str) -> None:
        job = self.jobs.get(parent_id)
        if job is None or job.finished_at is not None:
            raise FlowRefused

    def link_child(self, child: ModelJob) -> None:
        parent = self.jobs[child.header.parent.id] if child.header.parent else None
        if parent is not None:
            self._note(parent, self.name_of(child), "p")
            self.hold_back(parent)

    def settle_child(self, child: ModelJob, is_kept: bool) -> tuple[ModelJob, str] | None:
        """A child has ended. The parent that this ends, too, and the error of both; None: it goes on, or is gone."""
        parent, policy = self.parent_of(child), child.header.on_failure
        if parent is None:
            return None
        kind, content = legacy_of(child, is_kept)
        blame = self._blame_of(child, content) if kind == "f" and policy == "fail_parent" else ""
        if kind == "f" and not blame:
            kind = "" if policy == "remove" else "i"
        before = self._note(parent, self.name_of(child), kind, content)
        if before != "p" or parent.finished_at is not None:
            return None
        if blame and parent.state != "active":
            self.leave_waiting(parent)
            return parent, blame
        if blame:
            parent.failed_child = parent.failed_child or blame
        elif kind == "i" and policy == "continue_parent":
            parent.continued = "1"
        self.release_if_ready(parent)
        return None

    def drop_child(self, child: ModelJob) -> bool:
        """It will not end any more, or is no child any more; whether its parent waited for it."""
        parent = self.parent_of(child)
        if parent is None or parent.family[self.name_of(child)][0] != "p":
            return False
        self._note(parent, self.name_of(child), "")
        self.release_if_ready(parent)
        return True

    def await_again(self, child: ModelJob) -> None:
        """A child that had ended runs again."""
        parent = self.parent_of(child)
        if parent is not None and parent.family[self.name_of(child)][0] != "p" and parent.state != "active":
            self._note(parent, self.name_of(child), "p")
            self.hold_back(parent)

    def _note(self, parent: ModelJob, name: str, kind: str, content: str = "") -> str:
        """Write down what a child came to, "" = forget it, and count; what it was before."""
        before = parent.family.get(name, "")[:1]
        if kind:
            parent.family[name] = kind + content
        else:
            del parent.family[name]
        for each, step in ((before, -1), (kind, 1)):
            if counter := COUNTERS.get(each):
                setattr(parent, counter, (getattr(parent, counter) or 0) + step)
        return before

    def _blame_of(self, child: ModelJob, error: str) -> str:
        """The error of everybody above: all name the job where it began."""
        if child.reason == "child":
            return error
        problem, place = json(error), {"queue": self.queue, "job": child.id}
        message = f"job {child.id} of queue {self.queue} ended without a result: {problem['message']}"
        return text_of({"kind": problem["kind"], "message": message, "details": place})


def legacy_of(child: ModelJob, is_kept: bool) -> tuple[str, str]:
    """What a parent gets of a child that ended: its result, or why there is none."""
    if child.state == "completed":
        result = child.result or ""
        return "c", "" if is_kept and len(result) > MAX_COPIED_RESULT else result
    if child.state == "failed":
        return "f", child.error or ""
    reason = json(child.cancel or "").get("reason")
    message = f"canceled: {reason}" if reason else "canceled"
    return "f", text_of({"kind": "canceled", "message": message, "details": {}})


def text_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()
