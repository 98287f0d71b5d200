"""Traces: each message carries the W3C trace context of its sender. If OpenTelemetry is installed, it gets spans."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from peeklock_client.messages import Message

try:
    from peeklock_client import spans
except ImportError:
    spans = None

_PROCESSED: ContextVar[str | None] = ContextVar("_PROCESSED", default=None)
"""The trace context of the message that the current task processes."""


def current_traceparent() -> str | None:
    """Return the trace context of the current span, or else of the message that is processed."""
    return (spans.current_traceparent() if spans else None) or _PROCESSED.get()


@contextmanager
def sending(destination: str, *, count: int = 1, message_id: str | None = None) -> Generator[str | None]:
    """Send within a span, and yield the trace context for the messages. Errors are recorded with the span."""
    if spans is None:
        yield _PROCESSED.get()
        return
    with spans.send_span(destination, count, message_id):
        yield current_traceparent()


@contextmanager
def processing(destination: str, message: Message[Any]) -> Generator[None]:
    """Process a message within a span of its trace. Errors are recorded with the span.

    What this task sends afterwards, such as the commit with the results, belongs to the trace too.
    """
    _PROCESSED.set(message.traceparent)
    if spans is None:
        yield
        return
    with spans.process_span(destination, message.message_id, message.traceparent):
        _PROCESSED.set(current_traceparent())
        yield
