"""A family is told in steps that its root was canceled."""

from tests.model.ending import Ending
from tests.model.job import ModelJob
from tests.model.journal import json

TOLD_AT_ONCE = 25


class Untold(Ending):
    """What canceling a family comes to; who is still to be told is in `untold_lists`."""

    def cancel_descendants(self, job_id: str, limit: int) -> int:
        return self.tell_untold(job_id, limit)

    def list_children(self, root_id: str, job: ModelJob) -> None:
        entries = [f"{name} {self.name_of(job)}" for name in job.family]
        if entries:
            self.untold_lists.setdefault(root_id, []).extend(entries)

    def tell_untold(self, root_id: str, most: int) -> int:
        """Tell the next; returns how many are left, as far as they are listed."""
        cancel = self.untold.get(root_id)
        told = [] if cancel is None else self.untold_lists.pop(root_id, [])
        if told[most:]:
            self.untold_lists[root_id] = told[most:]
        for entry in told[:most]:
            name, parent = (each.partition(":")[2] for each in entry.split(" "))
            job = self.jobs.get(name)
            if job is not None and job.header.parent and job.header.parent.id == parent:
                self.list_children(root_id, job)
                if job.finished_at is None:
                    self.cancel_one(job, cancel or "")
        left = len(self.untold_lists.get(root_id, []))
        if left == 0:
            self.untold.pop(root_id, None)
        return left

    def cancel_one(self, job: ModelJob, cancel: str) -> None:
        if job.state != "active":
            self.leave_waiting(job)
            job.cancel, job.cancel_at = cancel, self.now
            self.cancel_finished(job, "{}")
        elif job.cancel is None:
            job.cancel, job.cancel_at = cancel, self.now
            self.tell(job, "canceling", cancel=json(cancel))
