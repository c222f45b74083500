"""After every situation with a parent or a child: who is where, and that all counts are right."""

import pytest

from tests.invariants import check_queue
from tests.lua.scenarios import SCENARIOS, Scenario
from tests.lua.scene import Scene

OF_FLOWS = [
    scenario for scenario in SCENARIOS if scenario.arrange.__module__.endswith((".flows", ".families", ".mixed"))
]


@pytest.mark.parametrize("scenario", OF_FLOWS, ids=str)
async def test_the_invariants_hold_after_each_situation(scene: Scene, scenario: Scenario) -> None:
    call = await scenario.arrange(scene)
    await check_queue(scene.queue)
    await call.make(scene.scripts, scenario.script)
    await check_queue(scene.queue)


def test_there_are_situations() -> None:
    assert len(OF_FLOWS) > 40
