"""Random histories of calls: to the scripts on a server, and to the model."""

from tests.model.rules.adding import AddingRules
from tests.model.rules.cleaning import CleaningRules
from tests.model.rules.flows import FlowRules
from tests.model.rules.groups import GroupRules
from tests.model.rules.reading import ReadingRules
from tests.model.rules.repeating import RepeatingRules
from tests.model.rules.steering import SteeringRules
from tests.model.rules.untold import UntoldRules
from tests.model.rules.upkeep import UpkeepRules
from tests.model.rules.working import WorkingRules


class Machine(
    AddingRules,
    WorkingRules,
    SteeringRules,
    CleaningRules,
    GroupRules,
    FlowRules,
    UntoldRules,
    UpkeepRules,
    RepeatingRules,
    ReadingRules,
):
    """Rules are calls; after each, answers, all keys, all new events and the invariants are compared."""
