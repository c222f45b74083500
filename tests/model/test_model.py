"""The model and the scripts agree after every call of random histories, and no branch of a script is left untried."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import lua
from orchestrator.errors import QueueFull
from orchestrator.queue import Queue
from orchestrator.scripts import adding, connect
from tests.dump import dump
from tests.instruments.branches import branches, counting_instead, read_counts
from tests.lua.scenarios import SCENARIOS, Scenario
from tests.lua.scene import Scene
from tests.model.machine import Machine
from tests.model.reference import Reference
from tests.model.rules.weighted import rules_of
from tests.model.running import EXAMPLES, STEPS, Result, run
from tests.servers import Server

OF_SCHEDULES = (
    "upsert_job_scheduler",
    "remove_job_scheduler",
    "get_job_scheduler",
    "get_job_schedulers",
    "get_hungry_schedules",
    "fill_schedule",
)
ELSEWHERE = dict.fromkeys(
    OF_SCHEDULES, "tests/lua/test_schedule_model.py has a model of schedules, whose time is hours"
)
"""Scripts that this model leaves out, and where they are held against something else."""

_LARGE_TREES = "more than 500 jobs below one: tests/orchestrator/test_flows_steering.py"
UNTRIED = {
    "includes/history.lua:72 then": "a history of 4,200 events: tests/orchestrator/test_steps.py",
    "includes/history.lua:13 then": "more than 100 names: tests/orchestrator/test_queue_events.py",
    "includes/run_schedules.lua:12 then": "a user who may not ask for INFO: tests/orchestrator/test_schedules.py",
    "includes/link_child.lua:48 then": "5,000 children: tests/orchestrator/test_flows_children.py",
    "includes/descendants.lua:19 then": _LARGE_TREES,
    "includes/descendants.lua:34 then": _LARGE_TREES,
    "includes/descendants.lua:53 function": _LARGE_TREES,
    "remove_job.lua:43 then": _LARGE_TREES,
    "remove_unprocessed_children.lua:46 then": _LARGE_TREES,
    "create_group.lua:24 then": "the outbox is no stream: somebody else wrote that key",
}
"""Branches that nothing takes, each with the reason why that is right."""


async def write_newer(scene: Scene) -> None:
    await scene.change_meta(layout="99.0")


async def write_older(scene: Scene) -> None:
    await scene.client.delete(scene.queue.keys.meta)
    await scene.client.hset(scene.queue.keys.meta, "layout", "4.0")


async def write_much_newer(scene: Scene) -> None:
    await scene.client.set(scene.queue.keys.meta, b"\x06\x02what this version cannot unpack")


LAYOUTS = {"99.0": write_newer, "6.2": write_much_newer, "4.0": write_older}
"""How the record of a queue says that another version wrote it; before 5.0 it was a hash."""


@pytest.fixture(scope="module")
def result() -> Result:
    """What the fixed histories went through; they fail where scripts and model part."""
    return run(EXAMPLES, STEPS)


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server whose counters are ours."""
    with tempfile.TemporaryDirectory(prefix="kargah-branches-") as folder:
        server = Server("valkey", Path(folder))
        server.start()
        yield server
        server.stop()


def test_the_model_has_a_method_for_every_script() -> None:
    missing = {name for name in lua.names() if not hasattr(Reference, name)}
    assert missing == ELSEWHERE.keys()


def test_no_history_of_calls_leads_away_from_the_model(result: Result) -> None:
    assert {rule.name for rule in rules_of(Machine)} - result.rules.keys() == set(), "rules that never ran"
    assert set(lua.names()) - result.transitions.keys() == ELSEWHERE.keys()
    assert result.transitions.total() > 3000


async def test_every_branch_of_every_script_is_taken_by_a_history_or_a_scenario(
    result: Result, own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting_instead(monkeypatch)
    client = connect(own_server.url)
    for number, scenario in enumerate(SCENARIOS):
        scene = Scene(Queue(f"b{number}", client))
        call = await scenario.arrange(scene)
        await call.make(scene.scripts, scenario.script)
        await call.make(scene.scripts, scenario.script)
        for write in LAYOUTS.values():
            await write(scene)
            await call.make(scene.scripts, scenario.script)
    monkeypatch.setattr(adding, "OUTBOX_MAX", 0)
    with pytest.raises(QueueFull):
        await Queue("full", client).add("paint", None)
    await client.aclose()
    with redis.Redis.from_url(own_server.url) as counters:
        taken = result.branches.keys() | read_counts(counters).keys()
    untried = branches() - taken - UNTRIED.keys()
    assert not untried, "no history and no scenario takes\n" + "\n".join(sorted(untried))
    assert not UNTRIED.keys() & taken, "are taken after all"
    assert taken | UNTRIED.keys() == branches(), "names that no script has"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", lua.names())
async def test_data_of_another_layout_are_refused_and_left_alone(scene: Scene, name: str, layout: str) -> None:
    scenario: Scenario = next(each for each in SCENARIOS if each.script == name)
    call = await scenario.arrange(scene)
    await LAYOUTS[layout](scene)
    before = await dump(scene.client, scene.prefix, with_answers=True)

    answer = await call.make(scene.scripts, name)

    assert str(answer).startswith(f"LayoutMismatch: the data are of layout {layout}")
    assert await dump(scene.client, scene.prefix, with_answers=True) == before
