"""A fault: one edit of one file of lua/, small, and wrong in a way that somebody could have written."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """`old` stands exactly once in `path` (in lua/) and becomes `new`; `fault` says what that breaks.

    tests: files that know what the fault is about.
    """

    path: str
    old: str
    new: str
    fault: str
    tests: tuple[str, ...] = ()

    def applied(self, text: str) -> str:
        """The file's text with the fault. Raises ValueError where the edit does not apply any more."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.path} has {text.count(self.old)} times, not once: {self.old!r}")
        return text.replace(self.old, self.new)


def faults_of(path: str, *edits: tuple[str, str, str]) -> list[Mutant]:
    """Faults of one file, each as (what stands there, what stands there instead, what that breaks)."""
    return [Mutant(path, *edit) for edit in edits]
