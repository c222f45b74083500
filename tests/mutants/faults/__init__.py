"""The faults, one file for each concern."""

from importlib import import_module
from pkgutil import iter_modules

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    mutant for module in iter_modules(__path__, f"{__name__}.") for mutant in import_module(module.name).FAULTS
]
