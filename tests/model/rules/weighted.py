"""Rules with weights: what a random history is made of, and how often each comes.

Hypothesis draws the rules of a state machine alike, and leaves many of them out of most histories; here a claim
has to come more often than a pause, or no job would ever end.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import rule as hypothesis_rule

from tests import record
from tests.model.job import ModelJob
from tests.model.rig import Rig

ran: Counter[str] = Counter()
"""How often each rule ran."""

INTERVAL_MS = 1000
STRIDE = 7
picks = st.integers(0, 999)
leases_ms = st.sampled_from([2000, 2000, 20_000])

Function = TypeVar("Function", bound=Callable[..., None])


class Rule(NamedTuple):
    """A method of a machine that is called with drawn values, `weight` times as often as one of weight 1."""

    name: str
    weight: int
    when: Callable[[Any], Any] | None
    strategies: dict[str, st.SearchStrategy[Any]]


def rule(
    weight: int, *, when: Callable[[Any], Any] | None = None, **strategies: st.SearchStrategy[Any]
) -> Callable[[Function], Function]:
    """Make a method a rule. `when`: it comes only where this is true of the machine."""

    def decorate(function: Function) -> Function:
        function.model_rule = Rule(function.__name__, weight, when, strategies)  # type: ignore[attr-defined]
        return function

    return decorate


class RuledMachine(RuleBasedStateMachine):
    """A rig, and what every rule needs. Rules come from subclasses: one class for each concern."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(self.url)
        self.model = self.rig.model
        self.call = self.rig.call
        self.tokens = self.steps = 0
        self.lane_calls = [0, 0]

    def teardown(self) -> None:
        self.rig.close()

    @hypothesis_rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Draw a rule, and run it."""
        rules = {rule.name: rule for rule in rules_of(type(self)) if rule.when is None or rule.when(self)}
        names = [name for name, rule in rules.items() for _ in range(rule.weight)]
        # One history in eight draws zeros for a long time; so it walks through all rules instead of repeating one.
        self.steps += STRIDE
        name = names[(data.draw(st.integers(0, len(names) - 1), "rule") + self.steps) % len(names)]
        note(name)
        values = {each: data.draw(strategy, each) for each, strategy in rules[name].strategies.items()}
        ran[name] += 1
        getattr(self, name)(**values)

    def token(self) -> str:
        self.tokens += 1
        return f"t{self.tokens}"

    def some(self, pick: int, *states: str) -> ModelJob | None:
        jobs = self.model.of(*states)
        return jobs[pick % len(jobs)] if jobs else None

    def any_id(self, pick: int) -> str:
        """An id; most are those of jobs."""
        jobs = [*self.model.jobs]
        return jobs[pick % len(jobs)] if jobs and pick % 10 != 9 else "nobody"

    def listen(self, kinds: str) -> None:
        """What the relay is to hear of all jobs; the subscriptions write it."""
        self.model.journal.notify = kinds
        key = self.rig.keys.meta
        meta = record.changed_meta(self.rig.client.get(key), notify=kinds or None)
        if meta.keys() - {"layout"}:
            self.rig.client.set(key, record.pack_meta(meta))
        else:
            self.rig.client.delete(key)

    def lane(self, lane: int) -> tuple[str, str, str]:
        self.lane_calls[lane] += 1
        return f"{self.lane_calls[lane]}-{lane}x", f"w:{lane}", "worker"


def is_any_running(machine: RuledMachine) -> bool:
    """For rules that do nothing while no job runs."""
    return bool(machine.model.of("active"))


@cache
def rules_of(machine: type) -> list[Rule]:
    """The rules of a class of machines."""
    found = [getattr(getattr(machine, name), "model_rule", None) for name in dir(machine)]
    return [each for each in found if each is not None]
