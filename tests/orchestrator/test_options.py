"""A job's options, and the queue's defaults behind them."""

import copy
import pickle
from typing import Any

import msgspec
import pytest

from orchestrator.backoff import Backoff
from orchestrator.deduplication import Deduplication
from orchestrator.job import JobOptions, KeepJobs
from orchestrator.queue import Queue
from orchestrator.scripts import Client

DEFAULTS = JobOptions(
    id="never",
    priority=5,
    attempts=3,
    lifo=True,
    backoff=Backoff("fixed", 10),
    remove_on_complete=KeepJobs(age_s=9, count=8),
    deduplication=Deduplication("k"),
)


def test_a_job_names_what_it_wants_and_takes_the_rest_from_the_queue_but_never_the_id() -> None:
    options = JobOptions(priority=7, timeout_ms=3).over(DEFAULTS)
    assert options == JobOptions(
        priority=7,
        timeout_ms=3,
        attempts=3,
        lifo=True,
        backoff=Backoff("fixed", 10),
        remove_on_complete=KeepJobs(age_s=9, count=8),
        deduplication=Deduplication("k"),
    )
    assert options.id is None
    assert JobOptions(id="mine").over(DEFAULTS).id == "mine"


def test_a_value_that_is_named_holds_although_it_is_the_usual_one() -> None:
    named: dict[str, Any] = {
        "priority": 0,
        "attempts": 1,
        "lifo": False,
        "backoff": None,
        "remove_on_complete": False,
        "deduplication": None,
    }
    assert JobOptions(**named).over(DEFAULTS) == JobOptions(remove_on_complete=False)


def test_without_defaults_the_options_stay_as_they_are() -> None:
    options = JobOptions(priority=3)
    assert options.over(JobOptions()) is options
    assert options.over(JobOptions(id="x")) is options


def test_options_remain_what_they_were_to_msgspec_copy_and_pickle() -> None:
    options = JobOptions(priority=0, attempts=2)
    for other in (copy.copy(options), pickle.loads(pickle.dumps(options)), msgspec.structs.replace(options)):
        assert other == options
        assert hash(other) == hash(options)
        assert other.over(DEFAULTS).attempts == 2
    assert msgspec.structs.replace(options, priority=4).over(DEFAULTS).priority == 4
    assert set(msgspec.structs.asdict(options)) == set(JobOptions.__struct_fields__)
    assert "_given" not in repr(options)
    with pytest.raises(AttributeError):
        options.priority = 3  # type: ignore[misc]


async def test_a_queue_adds_with_its_defaults(queue_name: str, client: Client) -> None:
    queue = Queue(queue_name, client, default_job_options=DEFAULTS)
    plain = await queue.add("paint")
    assert (plain.priority, plain.header.attempts, plain.id != "never") == (5, 3, True)
    assert (await queue.add("paint")).deduplicated
    other = JobOptions(priority=0, deduplication=None)
    named = await queue.add("paint", None, other)
    assert (named.priority, named.header.attempts, named.header.deduplication) == (0, 3, None)
    (bulk,) = await queue.add_bulk([("paint", None, other)])
    assert bulk.header == named.header
    assert (await queue.fan_out("paint", None, JobOptions(id="owed"))).header.attempts == 1, "none for what is owed"
