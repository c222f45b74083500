"""Calls of the duties and of the relay."""

from collections.abc import Sequence

from tests.model.claiming import Claiming
from tests.model.job import FINISHED
from tests.model.state import ordered
from tests.model.untold import TOLD_AT_ONCE, Untold


class Upkeep(Claiming, Untold):
    """What keeps a queue in order when nobody asks."""

    def move_due_jobs(self, limit: int) -> int:
        if self.untold:
            (root_id,) = self.untold  # of several the server would choose one: the rules let only one be large
            self.tell_untold(root_id, TOLD_AT_ONCE)
            return limit
        if self.grouped:
            self.forget_idle_groups()
        return self.promote_due(limit)

    def move_stalled_to_wait(self, lease_ms: int, interval_ms: int, limit: int) -> int:
        return 0 if self.epoch is None else self.recover_stalled(lease_ms, interval_ms, limit)

    def remove_expired(self, limit: int) -> int:
        removed = 0
        for state in FINISHED:
            ends = self.expires[state]
            for job_id in [each for each in ordered(ends) if ends[each] < self.now][:limit]:
                self.leave_state(job_id, state)
                removed += 1
                if job_id not in self.jobs:
                    self.tell_queue("removed", job=job_id, prev=state)
            removed += self.trim_rest(state, limit)
        return removed

    def forget_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.sweep.pop(path, None)

    def create_group(self, group: str) -> None:
        """The outbox is there from the first entry on; the group changes nothing that is compared."""

    def acknowledge(self, group: str, entry_ids: Sequence[str]) -> None:
        self.journal.outbox = [each for each in self.journal.outbox if each not in entry_ids]
