"""OpenTelemetry spans with the semantic conventions for messaging. This module needs opentelemetry-api."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SYSTEM = "peeklock"
PROPAGATOR = TraceContextTextMapPropagator()


def current_traceparent() -> str | None:
    """Return the trace context of the current span, None if there is no span."""
    carrier: dict[str, str] = {}
    PROPAGATOR.inject(carrier)
    return carrier.get("traceparent")


@contextmanager
def send_span(destination: str, count: int, message_id: str | None) -> Generator[None]:
    """Send within a span of kind producer."""
    attributes: dict[str, str | int] = {} if count == 1 else {"messaging.batch.message_count": count}
    if message_id is not None:
        attributes["messaging.message.id"] = message_id
    with _span("send", destination, trace.SpanKind.PRODUCER, attributes, None):
        yield


@contextmanager
def process_span(destination: str, message_id: str, traceparent: str | None) -> Generator[None]:
    """Process a message within a span of kind consumer, whose parent is the span that sent it."""
    parent = PROPAGATOR.extract({} if traceparent is None else {"traceparent": traceparent})
    with _span("process", destination, trace.SpanKind.CONSUMER, {"messaging.message.id": message_id}, parent):
        yield


@contextmanager
def _span(
    operation: str, destination: str, kind: trace.SpanKind, attributes: dict[str, str | int], parent: Context | None
) -> Generator[None]:
    described = attributes | {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": destination,
    }
    tracer = trace.get_tracer("peeklock_client")
    with tracer.start_as_current_span(f"{operation} {destination}", parent, kind, described) as span:
        try:
            yield
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise
