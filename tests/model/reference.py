"""The queue in plain Python: a method for every script, with its arguments and its answers.

It is what the scripts are held against, so it is written to be read, not to be fast. A new kind of caller is a new
class here, as in `orchestrator.scripts`; a new concern gets a file.
"""

from tests.model.cleaning import Cleaning
from tests.model.flows import Flows
from tests.model.observing import Observing
from tests.model.sharing import Sharing
from tests.model.upkeep import Upkeep
from tests.model.working import Working


class Reference(Flows, Working, Cleaning, Sharing, Observing, Upkeep):
    """All calls of one queue."""
