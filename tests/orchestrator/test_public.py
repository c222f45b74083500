"""What `from orchestrator import …` offers: complete, explained, and with errors that teach."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

import orchestrator
from orchestrator import (
    Batch,
    FlowJob,
    FlowProducer,
    InvalidOption,
    JobOptions,
    JobTemplate,
    Queue,
    RateLimit,
    RepeatOptions,
    Sandbox,
    Worker,
    errors,
)

NOWHERE = "redis://127.0.0.1:9"
OF_THE_SERVICE = {"FileMissing", "StartFailed", "ServiceUnreachable", "RequestRefused"}
"""Errors that no user of the queue meets."""
UNITS = ("_ms", "_s", "_bytes", "_at")


async def paint(job: orchestrator.ActiveJob) -> None:
    """A processor."""


# ── names ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_public_names_are_sorted_and_there() -> None:
    assert orchestrator.__all__ == sorted(set(orchestrator.__all__))
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name).__name__ == name


def test_every_error_that_a_user_of_the_queue_can_meet_is_public() -> None:
    there = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert there - OF_THE_SERVICE - set(orchestrator.__all__) == set()


@pytest.mark.parametrize("name", orchestrator.__all__)
def test_every_public_name_says_what_it_is(name: str) -> None:
    exported = getattr(orchestrator, name)
    assert exported.__doc__
    assert not exported.__doc__.startswith(f"{name}("), "that is the signature a NamedTuple writes for itself"
    for method, value in vars(exported).items():
        if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            text = value.fget.__doc__ if isinstance(value, property) else value.__doc__
            assert text, f"{name}.{method}"


@pytest.mark.parametrize("name", ["Group", "Job", "QueueMeta", "QueueStats", "RateLimit", "Batch", "KeepJobs"])
def test_what_is_read_explains_its_fields(name: str) -> None:
    exported = getattr(orchestrator, name)
    text = inspect.getdoc(exported) or ""
    for field in getattr(exported, "__struct_fields__", None) or exported._fields:
        assert field == "id" or re.search(rf"\b{field}\b", text), field


def test_every_parameter_of_a_worker_is_explained_and_a_number_has_its_unit() -> None:
    text = inspect.getdoc(Worker) or ""
    for name in list(inspect.signature(Worker).parameters):
        assert re.search(rf"\b{name}\b", text), name


def test_every_option_of_a_job_is_explained() -> None:
    text = inspect.getdoc(JobOptions) or ""
    for field in msgspec.structs.fields(JobOptions):
        assert re.search(rf"\b{field.name}\b", text), field.name


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────

MISTAKES: dict[str, tuple[Callable[[Queue], Any], str]] = {
    "options as a mapping": (
        lambda q: q.add("x", 1, _any({"attempts": 3})),
        r"opts: must be JobOptions\(…\), not dict",
    ),
    "defaults as a mapping": (
        lambda q: Queue("a", NOWHERE, default_job_options=_any({})),
        r"default_job_options: must be JobOptions\(…\), not dict",
    ),
    "another kind of URL": (lambda q: Queue("a", "http://x"), "redis: is no URL of a Redis: .*redis://"),
    "no client": (lambda q: Queue("a", _any(6379)), "redis: must be a URL, or a client of redis.asyncio, not int"),
    "a client that decodes": (
        lambda q: Queue("a", Redis(decode_responses=True)),
        "redis: must not decode its answers: decode_responses=True",
    ),
    "the job, not its id": (lambda q: q.cancel(_any(object())), "id: must be text, like job.id, not object"),
    "a tuple for a limit": (
        lambda q: q.set_group_rate_limit("a", _any((1, 2))),
        r"limit: must be RateLimit\(…\), not tuple",
    ),
    "a tuple for the limit of groups": (
        lambda q: q.set_group_defaults(rate_limit=_any((1, 2))),
        r"rate_limit: must be RateLimit\(…\), not tuple",
    ),
    "a mapping for a repetition": (
        lambda q: q.upsert_job_scheduler("a", _any({"every": 5})),
        r"repeat: must be RepeatOptions\(…\), not dict",
    ),
    "a name for a template": (
        lambda q: q.upsert_job_scheduler("a", RepeatOptions(every_ms=1000), _any("x")),
        r"template: must be JobTemplate\(…\), not str",
    ),
    "a template's options as a mapping": (
        lambda q: q.upsert_job_scheduler("a", RepeatOptions(every_ms=1000), JobTemplate("x", opts=_any({}))),
        r"template.opts: must be JobOptions\(…\), not dict",
    ),
    "a worker's limiter as a mapping": (lambda q: _worker(limiter={}), r"limiter: must be RateLimit\(…\), not dict"),
    "the size of a batch": (lambda q: _worker(batch=8), r"batch: must be Batch\(…\), not int"),
    "a list of warm keys": (lambda q: _worker(warm_keys=["a"]), "warm_keys: must be a function"),
    "a plain function for batches": (
        lambda q: Worker("a", _any(lambda jobs: []), NOWHERE, batch=Batch(8)),
        "processor: must be an async function where there is a batch",
    ),
    "a sandbox for batches": (
        lambda q: Worker("a", Sandbox("a:b"), NOWHERE, batch=Batch(8)),
        "processor: must be an async function where there is a batch",
    ),
    "a text for seconds": (lambda q: _worker(stop_grace_s="30"), "stop_grace_s: must be a number from 0"),
    "a negative grace": (lambda q: _worker(cancel_grace_ms=-1), "cancel_grace_ms: must be a whole number from 0"),
    "a distance that is none": (lambda q: _worker(progress_interval_ms="x"), "progress_interval_ms: must be a whole"),
    "a name that is none": (lambda q: _worker(name=5), "name: must be str"),
    "a flow's options as a mapping": (
        lambda q: FlowProducer(NOWHERE).add(FlowJob("a", "b", children=[FlowJob("c", "b", opts=_any({}))])),
        r"flows\[0\].children\[0\].opts: must be JobOptions\(…\), not dict",
    ),
    "a flow as a mapping": (lambda q: FlowProducer(NOWHERE).add(_any({})), r"flows\[0\].flow: must be a FlowJob"),
    "a flow producer's client": (lambda q: FlowProducer(_any(None)), "redis: must be a URL, or a client"),
    "a flow producer's defaults": (
        lambda q: FlowProducer(NOWHERE, default_job_options={"a": _any({})}),
        r"default_job_options\[a\]: must be JobOptions\(…\), not dict",
    ),
    "a switch that is none": (lambda q: _worker(keep_stack=1), "keep_stack: must be True or False"),
}


def _any(value: Any) -> Any:
    return value


def _worker(**options: Any) -> Worker:
    return Worker("a", paint, NOWHERE, **options)


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_usual_mistake_is_told_by_the_name_of_the_field_before_anything_is_sent(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    async with Queue("a", NOWHERE, deadline_s=0.01) as queue:
        with pytest.raises(InvalidOption, match=message):
            made = make(queue)
            await made


def test_what_is_usual_is_no_mistake() -> None:
    Worker("a", paint, NOWHERE, limiter=RateLimit(1, 1000), stop_grace_s=1.5, name="me")
