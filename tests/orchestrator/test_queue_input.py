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
from orchestrator.parent import Parent
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from tests.dump import dump
from tests.invariants import check_queue
from tests.lua.scene import Scene, drain
from tests.servers import Server

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


NO_NUMBERS: list[Any] = [1.0, math.nan, math.inf, True, "1", b"1", [1], None, -(2**63), 10**400]
RANGES = {
    "priority": (0, 2**21 - 1),
    "delay_ms": (0, 315_360_000_000),
    "attempts": (1, 100),
    "timeout_ms": (0, 315_360_000_000),
    "expires_ms": (0, 315_360_000_000),
    "max_stalled": (0, 100),
    "keep_logs": (0, 100_000),
}
NO_FLAGS: list[Any] = [0, 1, "yes", "", None, [], math.nan]
NO_KEEPERS: list[Any] = ["x", 1.5, math.nan, [1], {"count": 1}, b"1"]
NO_NOTIFY: list[Any] = [
    "completed",
    ["completed"],
    {"completed"},
    ("completed failed",),
    ("nonsense",),
    (1,),
    (None,),
    (b"completed",),
    None,
    ("completed\n",),
]
NO_IDS: list[Any] = [
    "", " ", "a b", "a\n", "\na", "a\r", "a\x00b", "{x}", "a{", "}", "*", "a*", "ä", "a\u2028", 'a","b":"c', "../x",
    "a/b", "a\\b", "-a", ":a", "@a", "x" * 129, "x" * 1_000_000, 5, 0, b"a", True, ["a"], "\ud800",
]  # fmt: skip


def wrong_options() -> list[tuple[str, dict[str, Any]]]:
    """Every option with values that it can never have, and the field that the refusal names."""
    wrong: list[tuple[str, dict[str, Any]]] = []
    for field, (low, high) in RANGES.items():
        wrong += [(field, {field: value}) for value in (low - 1, high + 1, *NO_NUMBERS)]
    for field in ("lifo", "has_files", "telemetry"):
        wrong += [(field, {field: value}) for value in NO_FLAGS]
    for field in ("remove_on_complete", "remove_on_fail"):
        wrong += [(field, {field: value}) for value in NO_KEEPERS]
        wrong += [(f"{field}.count", {field: value}) for value in (-1, 10_000_001)]
        for value in (-1, 1.5, True, math.nan, "1", 10**12):
            wrong.append((f"{field}.age_s", {field: KeepJobs(age_s=value)}))  # type: ignore[arg-type]
            wrong.append((f"{field}.count", {field: KeepJobs(count=value)}))  # type: ignore[arg-type]
    for value in (-1, 1.5, True, math.nan, "1", 2**63):
        wrong.append(("backoff.delay_ms", {"backoff": Backoff(delay_ms=value)}))  # type: ignore[arg-type]
        wrong.append(("backoff.max_ms", {"backoff": Backoff(max_ms=value)}))  # type: ignore[arg-type]
    jitters: list[Any] = [-0.1, 1.1, math.nan, math.inf, "1", None]
    wrong += [("backoff.jitter", {"backoff": Backoff(jitter=value)}) for value in jitters]
    wrong += [("backoff.type", {"backoff": Backoff(value)}) for value in ("a b", "", None, 1)]  # type: ignore[arg-type]
    wrong += [("backoff", {"backoff": value}) for value in ("fast", 1.5, [1], {"delay_ms": 1})]
    wrong += [("backoff.delay_ms", {"backoff": value}) for value in (-1, 2**63, True)]
    wrong += [("notify", {"notify": value}) for value in NO_NOTIFY]
    for field in ("id", "group", "batch_key"):
        wrong += [(field, {field: value}) for value in NO_IDS]
    texts: list[Any] = ["", "x" * 257, "\ud800", 5, b"x", True, ["x"]]
    wrong += [("affinity_key", {"affinity_key": value}) for value in texts]
    costs: list[Any] = [0, -1, 0.0009, 1_000_001, math.nan, math.inf, True, "1", None, [1]]
    wrong += [("cost", {"cost": value}) for value in costs]
    parents: list[Any] = ["root", ("queue", "root"), ["queue", "root"], {"queue": "q", "id": "root"}, 5, True]
    wrong += [("parent", {"parent": value}) for value in parents]
    wrong += [("parent.id", {"parent": Parent("above", value)}) for value in NO_IDS]
    wrong += [("parent.queue", {"parent": Parent(value, "root")}) for value in ("", "a b", "*", "{x", "another")]
    policies: list[Any] = ["fail", "", None, 1, True, b"ignore", "ignore"]
    wrong += [("on_failure", {"on_failure": value}) for value in policies]
    return wrong


def test_every_option_is_among_those_that_are_tried_with_wrong_values(server: Server) -> None:
    tried = {field.partition(".")[0] for field, _ in wrong_options()} | {"deduplication"}  # in test_deduplication.py
    assert tried == set(JobOptions.__struct_fields__)


@pytest.mark.parametrize(("field", "options"), wrong_options(), ids=lambda value: repr(value)[:60])
async def test_an_option_that_can_never_be_right_is_named_and_nothing_is_sent(
    queue: Queue, field: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOption) as refused:
        await queue.add("paint", None, JobOptions(**options))
    assert refused.value.field == field
    assert await dump(queue.client, queue.keys.prefix) == {}


@pytest.mark.parametrize(
    "name", ["", "x" * 129, "x" * 1_000_000, "\ud800", 5, None, b"x", True, ["x"]], ids=lambda n: repr(n)[:20]
)
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
