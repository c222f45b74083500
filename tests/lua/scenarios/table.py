"""For every script, the situations in which it does something different: one table for all tests over all scripts."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from orchestrator.errors import KargahError
from orchestrator.job import KeepJobs
from orchestrator.scripts import Scripts
from tests.lua.scene import Scene

ERROR = b'{"kind":"transient","message":"oh","details":{}}'
TIMEOUT = b'{"kind":"timeout","message":"slow","details":{}}'
CANCEL = b'{"by":"me","reason":"why"}'


class Call(NamedTuple):
    """Arguments of a method of `Scripts`."""

    args: tuple[Any, ...]
    fields: dict[str, Any]

    async def make(self, scripts: Scripts, name: str) -> Any:
        """Make the call; a named error is an answer too."""
        try:
            answer = await getattr(scripts, name)(*self.args, **self.fields)
        except KargahError as problem:
            return _told(problem)
        return [_told(each) for each in answer] if isinstance(answer, list) else answer


def _told(answer: Any) -> Any:
    return f"{type(answer).__name__}: {answer}" if isinstance(answer, KargahError) else answer


Arrange = Callable[[Scene], Awaitable[Call]]


class Scenario(NamedTuple):
    """`arrange` brings a queue into position and returns the call to make there.

    counts: the answer says how much *this* call did, so that it differs when the call is made again.
    """

    script: str
    title: str
    arrange: Arrange
    counts: bool

    def __str__(self) -> str:
        return f"{self.script}: {self.title}"


SCENARIOS: list[Scenario] = []


def scenario(script: str, title: str, *, counts: bool = False) -> Callable[[Arrange], Arrange]:
    """Add a scenario to the table."""

    def keep(arrange: Arrange) -> Arrange:
        SCENARIOS.append(Scenario(script, title, arrange, counts))
        return arrange

    return keep


def call(*args: Any, **fields: Any) -> Call:
    """A call to make."""
    return Call(args, fields)


def age(age_s: int) -> Any:
    """Kept for so many seconds."""
    return KeepJobs(age_s=age_s)
