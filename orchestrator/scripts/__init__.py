"""The one seam to Redis: a method per Lua script, sent again until its answer is known."""

from orchestrator.scripts.adding import AddingScripts, NewParts
from orchestrator.scripts.call import DEADLINE_S
from orchestrator.scripts.cleaning import CleaningScripts
from orchestrator.scripts.connection import Client, check_client, connect, drop_connections, end_tasks, twin
from orchestrator.scripts.flows import FlowEntry, FlowScripts
from orchestrator.scripts.groups import GroupScripts
from orchestrator.scripts.listener import Listener, listen
from orchestrator.scripts.observing import ObservingScripts
from orchestrator.scripts.reading import Limits, Page, ReadingScripts
from orchestrator.scripts.schedules import ScheduleScripts
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
    "Limits",
    "Listener",
    "NewParts",
    "Page",
    "Report",
    "Scripts",
    "check_client",
    "connect",
    "drop_connections",
    "end_tasks",
    "listen",
    "twin",
]


class Scripts(
    AddingScripts,
    ReadingScripts,
    WorkingScripts,
    SteeringScripts,
    CleaningScripts,
    GroupScripts,
    ScheduleScripts,
    FlowScripts,
    UpkeepScripts,
    ObservingScripts,
):
    """All scripts of one queue, each as the method of its name; one file of this package for each kind of caller."""
