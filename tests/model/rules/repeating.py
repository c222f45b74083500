"""Calls are sent again: at once, because a reply was lost, or late, because a network kept a copy."""

from tests.model.rules.weighted import RuledMachine, picks, rule

DUTIES = ("move_due_jobs", "move_stalled_to_wait", "remove_expired", "obliterate", "cancel_descendants")
"""What they do is bounded: called again, they go on where they stopped."""


class RepeatingRules(RuledMachine):
    """What networks do."""

    @rule(5, when=lambda self: self.rig.sent_at == self.model.now)
    def repeat_the_last_call(self) -> None:
        """A reply was lost: the same call once more has no effect and the same answer."""
        sent = self.rig.sent[-1]
        before = self.rig.picture()
        self.rig.again(sent)
        assert sent.name in DUTIES or self.rig.picture() == before, f"{sent.name} had an effect twice"

    @rule(3, when=lambda self: self.rig.sent, pick=picks)
    def a_copy_comes_late(self, pick: int) -> None:
        sent = self.rig.sent[pick % len(self.rig.sent)]
        self.rig.again(sent)
