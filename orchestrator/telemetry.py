"""Traces by OpenTelemetry: a span for each add, one for each attempt, joined through the job's definition.

Nothing is imported here, and nothing done, unless the application itself has imported `opentelemetry` and set a
provider up: without it a call costs a look into `sys.modules`.

Source: the semantic conventions for messaging spans; the header is W3C Trace Context.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

SYSTEM = "kargah"
MAX_STATE_CHARS = 512
_NAMED_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ


def is_traced() -> bool:
    """Whether the application has set a provider up."""
    return _tracer() is not None


def trace_context() -> str:
    """The current span as `<traceparent>` or `<traceparent> <tracestate>`; "" when there is none."""
    if _tracer() is None or (trace := sys.modules["opentelemetry.trace"]).get_current_span() is trace.INVALID_SPAN:
        return ""
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    parent, state = carrier.get("traceparent", ""), carrier.get("tracestate", "")
    return f"{parent} {state}" if state and len(state) <= MAX_STATE_CHARS else parent


def adding(queue: str, name: str) -> contextlib.AbstractContextManager[Callable[[str, int], None]]:
    """While inside, a producer span `add <queue>` is the current one; what is raised is recorded in it.

    What it gives is called with the job's id and the size of its data in bytes, once they are known.
    """
    tracer = _tracer()
    return _UNTRACED if tracer is None else _traced(tracer, queue, name)


@contextlib.contextmanager
def _traced(tracer: "Tracer", queue: str, name: str) -> Iterator[Callable[[str, int], None]]:
    from opentelemetry.trace import SpanKind

    attributes = _attributes("add", "send", queue, name)
    with tracer.start_as_current_span(f"add {queue}", kind=SpanKind.PRODUCER, attributes=attributes) as span:

        def note(job_id: str, size: int) -> None:
            span.set_attributes({"messaging.message.id": job_id, "messaging.message.body.size": size})

        yield note


class AttemptSpan:
    """A consumer span `process <queue>` that continues the producer's trace; without a provider it does nothing."""

    def __init__(self, queue: str, name: str, job_id: str, context: str, facts: Mapping[str, str | int]) -> None:
        self._span: Span | None = None
        tracer = _tracer()
        if tracer is None:
            return
        from opentelemetry.trace import SpanKind

        attributes = _attributes("process", "process", queue, name) | {"messaging.message.id": job_id}
        attributes |= {f"kargah.job.{fact}": value for fact, value in facts.items()}
        self._span = tracer.start_span(
            f"process {queue}", context=_parent(context), kind=SpanKind.CONSUMER, attributes=attributes
        )

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """While inside, spans and log lines of the processor belong to this one."""
        if self._span is None:
            yield
            return
        from opentelemetry.trace import use_span

        with use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield

    def end(self, outcome: str, problem: BaseException | None = None, *, is_retried: bool = False) -> None:
        """The attempt is over. Failures make it an error; a cancellation and a hand-back do not."""
        if self._span is None:
            return
        from opentelemetry.trace import StatusCode

        self._span.set_attributes({"kargah.job.outcome": outcome, "kargah.job.retried": is_retried})
        if outcome == "failed":
            self._span.set_status(StatusCode.ERROR)
            if problem is not None:
                self._span.set_attribute("error.type", type(problem).__qualname__)
                with contextlib.suppress(Exception):  # it may have no text: its own __str__ is at fault
                    self._span.record_exception(problem)
        self._span.end()


def _note_nothing(job_id: str, size: int) -> None:
    """Nobody traces."""


_UNTRACED = contextlib.nullcontext(_note_nothing)


def _tracer() -> "Tracer | None":
    """The application's tracer; None unless it has imported OpenTelemetry and set a provider."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or (getattr(trace, "_TRACER_PROVIDER", trace) is None and not _NAMED_PROVIDER):
        return None  # as it is nearly always; to ask for the provider costs more than the rest of an add's checks
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    return _tracer_of(provider)


@functools.lru_cache(maxsize=4)
def _tracer_of(provider: Any) -> "Tracer":
    tracer: Tracer = provider.get_tracer(SYSTEM)
    return tracer


@functools.cache
def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def _parent(context: str) -> "Context | None":
    parent, _, state = context.partition(" ")
    if not parent:
        return None
    carrier = {"traceparent": parent} | ({"tracestate": state} if state else {})
    found: Context = _propagator().extract(carrier)
    return found


def _attributes(operation: str, operation_type: str, queue: str, name: str) -> dict[str, str | int]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation_type,
        "kargah.job.name": name,
    }
