"""The parent that a job names: who waits for it, and what its failure means there."""

import msgspec

from orchestrator.errors import InvalidOption
from orchestrator.keys import check_job_id, check_queue_name

ON_FAILURE = ("fail_parent", "ignore", "remove", "continue_parent")


class Parent(msgspec.Struct, frozen=True, array_like=True):
    """The job that waits for this one."""

    queue: str
    id: str

    def check(self) -> None:
        """Raise `InvalidOption` unless both could be right."""
        try:
            check_queue_name(self.queue)
            check_job_id(self.id)
        except InvalidOption as problem:
            raise InvalidOption(f"parent.{problem.field}", problem.problem) from None


def check_parent(parent: Parent | None, on_failure: str) -> None:
    """Raise `InvalidOption` unless `parent` is one, and `on_failure` a policy that has a parent to be about."""
    if on_failure not in ON_FAILURE:
        raise InvalidOption("on_failure", f"must be one of {', '.join(ON_FAILURE)}")
    if parent is None:
        if on_failure != "fail_parent":
            raise InvalidOption("on_failure", "says something about a parent, and there is none")
        return
    if not isinstance(parent, Parent):
        raise InvalidOption("parent", "must be a Parent")
    parent.check()
