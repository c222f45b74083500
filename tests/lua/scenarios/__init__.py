"""For every script, the situations in which it does something different: one table for all tests over all scripts."""

from tests.lua.scenarios import adding, families, flows, reading, steering, upkeep, working
from tests.lua.scenarios.table import SCENARIOS, Call, Scenario

__all__ = ["SCENARIOS", "Call", "Scenario", "adding", "families", "flows", "reading", "steering", "upkeep", "working"]
