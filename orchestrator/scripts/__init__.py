"""The one seam to Redis: a method per Lua script, sent again until its answer is known."""

from orchestrator.scripts.adding import AddingScripts
from orchestrator.scripts.call import DEADLINE_S
from orchestrator.scripts.connection import Client, connect, end_tasks
from orchestrator.scripts.flows import FlowEntry, FlowScripts
from orchestrator.scripts.reading import ReadingScripts
from orchestrator.scripts.steering import SteeringScripts
from orchestrator.scripts.upkeep import UpkeepScripts
from orchestrator.scripts.working import Claim, Claims, Finish, Report, WorkingScripts

__all__ = [
    "DEADLINE_S",
    "Claim",
    "Claims",
    "Client",
    "Finish",
    "FlowEntry",
    "Report",
    "Scripts",
    "connect",
    "end_tasks",
]


class Scripts(AddingScripts, ReadingScripts, WorkingScripts, SteeringScripts, UpkeepScripts, FlowScripts):
    """All scripts of one queue, each as the method of its name; one file of this package for each kind of caller."""
