"""What a queue refuses before anything is sent, and the odd things that it takes."""

import dataclasses
import json
import math
from typing import Any

import msgspec
import pytest

from orchestrator.backoff import Backoff
from orchestrator.errors import (
    InvalidOption,
)
from orchestrator.job import JobOptions, JobState, KeepJobs
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from tests.dump import dump
from tests.invariants import check_queue
from tests.lua.scene import Scene, drain

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@dataclasses.dataclass
class Point:
    x: float


@pytest.mark.parametrize(
    "data",
    [
        math.nan,
        {"a": [1, {"b": math.inf}]},
        [None, -math.inf],
        Point(math.nan),
        (1, math.nan),
        CYCLE,
        DEEP,
        "\ud800",
        {"\udfff": 1},
        {(1, 2): 3},
        object(),
        print,
        "x" * 600_000,
        msgspec.Raw(b'{"a":'),
        msgspec.Raw(b""),
        msgspec.Raw(b"1\n2"),
        msgspec.Raw(b"NaN"),
    ],
    ids=lambda data: type(data).__name__,
)
async def test_data_that_json_cannot_say_are_refused_and_nothing_is_sent(queue: Queue, data: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.add("paint", data)
    assert refused.value.field == "data"
    assert await dump(queue.client, queue.keys.prefix) == {}


async def test_data_that_only_look_dangerous_are_taken(queue: Queue) -> None:
    for data in (
        None,
        [None],
        "null",
        {"null": 1.5},
        json.loads("[" * 200 + "]" * 200),
        10**30,
        -0.0,
        {"a": "NaN"},
        msgspec.Raw(b'{"a":\n 1}'),
    ):
        job = await queue.add("paint", data)
        found = await queue.get_job(job.id)
        assert found is not None
        assert bytes(found.data) == bytes(job.data)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("priority", {"priority": -1}),
        ("priority", {"priority": 2**21}),
        ("priority", {"priority": 1.5}),
        ("priority", {"priority": True}),
        ("priority", {"priority": "1"}),
        ("delay_ms", {"delay_ms": -5}),
        ("delay_ms", {"delay_ms": math.nan}),
        ("delay_ms", {"delay_ms": 2**63}),
        ("attempts", {"attempts": 0}),
        ("attempts", {"attempts": 101}),
        ("attempts", {"attempts": None}),
        ("timeout_ms", {"timeout_ms": -1}),
        ("expires_ms", {"expires_ms": 0.1}),
        ("max_stalled", {"max_stalled": -1}),
        ("keep_logs", {"keep_logs": 10**9}),
        ("lifo", {"lifo": "yes"}),
        ("has_files", {"has_files": 1}),
        ("notify", {"notify": "completed"}),
        ("notify", {"notify": ("completed failed",)}),
        ("notify", {"notify": ("nonsense",)}),
        ("backoff", {"backoff": "fast"}),
        ("backoff.delay_ms", {"backoff": -1}),
        ("backoff.delay_ms", {"backoff": Backoff(delay_ms=1.5)}),  # type: ignore[arg-type]
        ("backoff.jitter", {"backoff": Backoff(jitter=math.nan)}),
        ("backoff.jitter", {"backoff": Backoff(jitter="1")}),  # type: ignore[arg-type]
        ("backoff.max_ms", {"backoff": Backoff(max_ms=-1)}),
        ("backoff.type", {"backoff": Backoff("a strategy")}),
        ("remove_on_complete", {"remove_on_complete": "x"}),
        ("remove_on_complete.count", {"remove_on_complete": -1}),
        ("remove_on_complete.age_s", {"remove_on_complete": KeepJobs(age_s=1.5)}),  # type: ignore[arg-type]
        ("remove_on_fail.age_s", {"remove_on_fail": KeepJobs(age_s=-1)}),
        ("id", {"id": ""}),
        ("id", {"id": "a b"}),
        ("id", {"id": "a\n"}),
        ("id", {"id": "{x}"}),
        ("id", {"id": "*"}),
        ("id", {"id": "ä"}),
        ("id", {"id": 'a","b":"c'}),
        ("id", {"id": "../x"}),
        ("id", {"id": "x" * 129}),
        ("id", {"id": 5}),
        ("id", {"id": b"a"}),
    ],
    ids=str,
)
async def test_an_option_that_can_never_be_right_is_named_and_nothing_is_sent(
    queue: Queue, field: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.add("paint", None, JobOptions(**options))
    assert refused.value.field == field
    assert await dump(queue.client, queue.keys.prefix) == {}


@pytest.mark.parametrize("name", ["", "x" * 129, "\ud800", 5, None, b"x"], ids=repr)
async def test_a_name_that_is_no_name_is_refused(queue: Queue, name: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.add(name)
    assert refused.value.field == "name"


@pytest.mark.parametrize("name", ["a\nb", '"}', "\x00", "</script>", "名前 🎨", "a b" * 40, "\x7f\x1b[31m"], ids=repr)
async def test_any_unicode_text_may_be_a_name(scene: Scene, name: str) -> None:
    job = await scene.queue.add(name)
    await drain(scene)
    history = await scene.queue.get_history(job.id)
    assert history[0].fields["name"] == name
    found = await scene.queue.get_job(job.id)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("name", ["", "a b", "a:b", "{x}", "a\n", "ä", "x" * 65, "*", "../x"], ids=repr)
async def test_a_queue_name_that_could_leave_its_prefix_is_refused(client: Client, name: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Queue(name, client)
    assert refused.value.field == "queue"


async def test_ids_that_look_special_do_not_collide(scene: Scene) -> None:
    ids = ["a:b", "a", "1", "0", "a:b:c", "state:a", "job:a", "A", "meta", "a@b.c-d_e", "x" * 128]
    for job_id in ids:
        await scene.queue.add("paint", job_id, JobOptions(id=job_id))
    assert await drain(scene) == ids
    await check_queue(scene.queue)
    for job_id in ids:
        job = await scene.queue.get_job(job_id)
        assert job is not None
        assert job.data_as(str) == job_id


@pytest.mark.parametrize("states", ["waiting", ["meta"], ["wait"], [None]], ids=repr)
async def test_only_states_can_be_listed(queue: Queue, states: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.get_jobs(states)
    assert refused.value.field == "states"


@pytest.mark.parametrize(("start", "count"), [(-1, 1), (0, 0), (0, 101), (0.5, 1), (0, True)])
async def test_a_page_has_a_start_and_a_bounded_length(queue: Queue, start: Any, count: Any) -> None:
    with pytest.raises(InvalidOption):
        await queue.get_jobs([JobState.WAITING], start, count)
    with pytest.raises(InvalidOption):
        await queue.get_recent(start, count)
