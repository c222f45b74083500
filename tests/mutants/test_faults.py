"""The table of faults fits the scripts: who changes a line that a fault is about changes the fault, too."""

from collections import Counter

import pytest

from tests.mutants.faults import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.stages import ROOT, name_of, remembered


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_each_fault_can_be_planted_once(mutant: Mutant) -> None:
    text = (ROOT / "lua" / mutant.path).read_text()
    assert mutant.applied(text) != text
    assert all((ROOT / path).exists() for path in mutant.tests)


def test_each_fault_has_a_name_of_its_own_and_only_those_are_remembered() -> None:
    names = Counter(name_of(mutant) for mutant in MUTANTS)
    assert max(names.values()) == 1
    assert remembered().keys() <= names.keys()
