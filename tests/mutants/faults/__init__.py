"""The faults, one file for each concern, which says what tests know most about it."""

from importlib import import_module
from pkgutil import iter_modules

from tests.mutants.mutant import Mutant

_CONCERNS = [import_module(module.name) for module in iter_modules(__path__, f"{__name__}.")]

MUTANTS: list[Mutant] = [
    mutant._replace(tests=mutant.tests + concern.TESTS) for concern in _CONCERNS for mutant in concern.FAULTS
]
