"""Traces: a job's attempts continue the trace of whoever added it; without a provider nothing is done."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from orchestrator import telemetry
from orchestrator.active_job import ActiveJob
from orchestrator.errors import InvalidOption, JobCanceled, UnrecoverableError
from orchestrator.job import JobOptions, JobState
from orchestrator.queue import Queue
from orchestrator.worker import Worker
from tests.orchestrator.running import ended, run_one, until_active

ROOT = Path(__file__).parents[2]
STATE = "vendor=a b,other=2"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A provider for this test, and what it exported."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def named(spans: InMemorySpanExporter, operation: str) -> list[ReadableSpan]:
    """The finished spans of an operation, in order."""
    return [span for span in spans.get_finished_spans() if span.name.startswith(f"{operation} ")]


async def nothing(job: ActiveJob) -> None: ...


async def test_an_attempt_continues_the_trace_of_its_add(queue: Queue, url: str, spans: InMemorySpanExporter) -> None:
    job = await run_one(queue, url, nothing, JobOptions(priority=7))
    (added,), (processed,) = named(spans, "add"), named(spans, "process")
    assert (added.name, processed.name) == (f"add {queue.name}", f"process {queue.name}")
    assert (added.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert processed.parent is not None
    assert processed.parent.span_id == added.context.span_id
    assert processed.context.trace_id == added.context.trace_id
    common = {
        "messaging.system": "kargah",
        "messaging.destination.name": queue.name,
        "messaging.message.id": job.id,
        "kargah.job.name": "paint",
    }
    assert dict(added.attributes or {}) == common | {
        "messaging.operation.name": "add",
        "messaging.operation.type": "send",
        "messaging.message.body.size": 7,
    }
    assert dict(processed.attributes or {}) == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "kargah.job.run": 1,
        "kargah.job.attempt": 1,
        "kargah.job.priority": 7,
        "kargah.job.outcome": "completed",
        "kargah.job.retried": False,
    }
    assert processed.status.status_code is StatusCode.UNSET


async def test_the_span_is_the_current_one_in_the_processor(
    queue: Queue, url: str, spans: InMemorySpanExporter
) -> None:
    async def work(job: ActiveJob) -> None:
        with trace.get_tracer_provider().get_tracer("mine").start_as_current_span("inside"):
            await asyncio.sleep(0)

    await run_one(queue, url, work)
    (inside,) = [span for span in spans.get_finished_spans() if span.name == "inside"]
    (processed,) = named(spans, "process")
    assert inside.parent is not None
    assert inside.parent.span_id == processed.context.span_id


async def test_every_attempt_has_a_span_and_errors_are_recorded(
    queue: Queue, url: str, spans: InMemorySpanExporter
) -> None:
    async def work(job: ActiveJob) -> Any:
        if job.attempt == 1:
            raise ZeroDivisionError("oh")
        raise UnrecoverableError("never")

    await run_one(queue, url, work, JobOptions(attempts=5))
    (added,), (first, second) = named(spans, "add"), named(spans, "process")
    assert {span.context.trace_id for span in (first, second)} == {added.context.trace_id}
    for span, attempt, kind, is_retried in (
        (first, 1, "ZeroDivisionError", True),
        (second, 2, "UnrecoverableError", False),
    ):
        attributes = span.attributes or {}
        assert attributes["kargah.job.attempt"] == attempt
        assert attributes["kargah.job.outcome"] == "failed"
        assert attributes["kargah.job.retried"] is is_retried
        assert attributes["error.type"] == kind
        assert span.status.status_code is StatusCode.ERROR
        assert [event.name for event in span.events] == ["exception"]


async def test_an_error_without_a_text_is_recorded_by_its_type(
    queue: Queue, url: str, spans: InMemorySpanExporter
) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    async def work(job: ActiveJob) -> None:
        raise Mute

    job = await run_one(queue, url, work)
    assert job.state is JobState.FAILED
    (processed,) = named(spans, "process")
    assert str((processed.attributes or {})["error.type"]).endswith("Mute")
    assert processed.status.status_code is StatusCode.ERROR


async def test_a_cancellation_is_no_error(queue: Queue, url: str, spans: InMemorySpanExporter) -> None:
    async def work(job: ActiveJob) -> None:
        await job.cancel_requested.wait()
        raise JobCanceled("stopped")

    job = await queue.add("paint")
    async with Worker(queue.name, work, url):
        await until_active(queue)
        await queue.cancel(job.id)
        await ended(queue, job.id)
    (processed,) = named(spans, "process")
    assert (processed.attributes or {})["kargah.job.outcome"] == "canceled"
    assert processed.status.status_code is StatusCode.UNSET


async def test_a_job_may_leave_its_producer_s_trace(queue: Queue, url: str, spans: InMemorySpanExporter) -> None:
    job = await run_one(queue, url, nothing, JobOptions(telemetry=False))
    assert job.header.trace_context == ""
    (added,), (processed,) = named(spans, "add"), named(spans, "process")
    assert processed.parent is None
    assert processed.context.trace_id != added.context.trace_id


async def test_a_refused_add_is_an_error_of_its_span(queue: Queue, spans: InMemorySpanExporter) -> None:
    with pytest.raises(InvalidOption):
        await queue.add("paint", None, JobOptions(attempts=0))
    (added,) = named(spans, "add")
    assert added.status.status_code is StatusCode.ERROR


async def test_an_add_joins_the_trace_it_is_called_in(queue: Queue, spans: InMemorySpanExporter) -> None:
    with trace.get_tracer_provider().get_tracer("mine").start_as_current_span("request") as request:
        await queue.add("paint")
    (added,) = named(spans, "add")
    assert added.parent is not None
    assert added.parent.span_id == request.get_span_context().span_id


def test_the_state_of_the_trace_travels_with_it(spans: InMemorySpanExporter) -> None:
    parent = f"00-{'1' * 32}-{'2' * 16}-01"
    context = telemetry._parent(f"{parent} {STATE}")
    tracer = trace.get_tracer_provider().get_tracer("mine")
    with tracer.start_as_current_span("request", context=context):
        stored = telemetry.trace_context()
    assert stored.split(" ")[0].split("-")[1] == "1" * 32
    assert stored.partition(" ")[2].replace(" ", "") == STATE.replace(" ", "")
    long = ",".join(f"v{number}={'x' * 60}" for number in range(20))
    with tracer.start_as_current_span("request", context=telemetry._parent(f"{parent} {long}")):
        assert " " not in telemetry.trace_context()


@pytest.mark.parametrize("context", ["", "nonsense", "00-zz-zz-01"])
async def test_a_context_that_cannot_be_read_begins_a_new_trace(spans: InMemorySpanExporter, context: str) -> None:
    telemetry.AttemptSpan("q", "n", "id", context, {}).end("completed")
    (processed,) = named(spans, "process")
    assert processed.parent is None


async def test_without_a_provider_nothing_is_stored_or_traced(queue: Queue, url: str) -> None:
    job = await run_one(queue, url, nothing)
    assert job.header.trace_context == ""
    stored = await queue.client.get(f"{queue.keys.prefix}job:{job.id}")
    assert "paint" in str(stored)
    assert "tm" not in str(stored).replace("paint", "")


def test_opentelemetry_is_not_imported_by_us() -> None:
    """Nor by an add or an attempt."""
    code = (
        "import sys, redis.asyncio\n"  # which imports it, where it is installed
        "before = {name for name in sys.modules if name.startswith('opentelemetry')}\n"
        "import orchestrator, orchestrator.telemetry as t\n"
        "with t.adding('q', 'n') as note: note('id', 1)\n"
        "span = t.AttemptSpan('q', 'n', 'id', '00-1-2-3', {})\n"
        "with span.current(): pass\n"
        "span.end('completed')\n"
        "assert t.trace_context() == ''\n"
        "assert {name for name in sys.modules if name.startswith('opentelemetry')} == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
