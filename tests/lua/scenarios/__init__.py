"""For every script, the situations in which it does something different: one table for all tests over all scripts."""

from importlib import import_module
from pkgutil import iter_modules

from tests.lua.scenarios.table import SCENARIOS, Call, Scenario

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)

__all__ = ["SCENARIOS", "Call", "Scenario"]
