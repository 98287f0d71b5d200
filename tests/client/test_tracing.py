"""Traces: messages carry on the trace of what makes them, and OpenTelemetry gets the spans of its conventions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from peeklock_client import AckPolicy, Client, NewMessage, Queue, Sender, Worker

from tests.bounds import bounded
from tests.client.conftest import new_queue

POLL_SECONDS, MAX_POLLS = 0.01, 6000

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """What records the spans of this process. OpenTelemetry has one provider for a process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    exporter.clear()


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    """Return the one span of this name."""
    [span] = [span for span in spans.get_finished_spans() if span.name == name]
    return span


def identity(span: trace.Span | ReadableSpan) -> str:
    """Return the trace context that a child of this span is given, without its flags."""
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}"


async def processed(client: Client, queue: Queue, result: Any = None) -> None:
    """Process one message, by a handler that returns or raises this."""
    worker = Worker(client)

    @worker.on(queue.name, ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def handle(body: str) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    await worker.start()
    for _ in bounded("the message is not processed", MAX_POLLS):
        if worker.report.completed + worker.report.dead_lettered:
            break
        await asyncio.sleep(POLL_SECONDS)
    await worker.stop()


async def test_a_send_is_a_span_whose_context_the_message_carries(queue: Queue, spans: InMemorySpanExporter) -> None:
    await queue.send("work", message_id="m")
    [received] = await queue.receive()
    span = named(spans, f"send {queue.name}")
    assert (received.message.traceparent or "").startswith(identity(span))
    assert span.kind is trace.SpanKind.PRODUCER
    assert dict(span.attributes or {}) == {
        "messaging.system": "peeklock",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": queue.name,
        "messaging.message.id": "m",
    }


async def test_a_batch_is_one_span_with_its_number_of_messages(queue: Queue, spans: InMemorySpanExporter) -> None:
    await queue.send_batch(["a", "b"])
    attributes = named(spans, f"send {queue.name}").attributes or {}
    assert attributes["messaging.batch.message_count"] == 2


async def test_a_handler_is_a_span_in_the_trace_of_its_message(
    client: Client, queue: Queue, spans: InMemorySpanExporter
) -> None:
    results = await new_queue(client)
    await queue.send("work")
    await processed(client, queue, NewMessage("done", queue=results.name))
    sent, span = named(spans, f"send {queue.name}"), named(spans, f"process {queue.name}")
    assert span.kind is trace.SpanKind.CONSUMER
    assert (span.parent and span.parent.span_id) == (sent.context and sent.context.span_id)
    [result] = await results.receive()
    assert (result.message.traceparent or "").startswith(identity(span))


async def test_an_error_is_recorded_with_its_span(client: Client, queue: Queue, spans: InMemorySpanExporter) -> None:
    await queue.send("work")
    await processed(client, queue, ValueError("no stock"))
    span = named(spans, f"process {queue.name}")
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert span.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


async def test_each_message_of_a_shared_sender_belongs_to_the_trace_of_its_call(
    queue: Queue, spans: InMemorySpanExporter
) -> None:
    tracer, contexts = trace.get_tracer("test"), dict[str, str]()

    async def post(sender: Sender[Any], name: str) -> None:
        with tracer.start_as_current_span(name) as span:
            contexts[name] = identity(span)
            await sender.post(name)

    async with Sender(queue) as sender:
        await asyncio.gather(*(post(sender, name) for name in "abc"))
        await sender.post("own", traceparent=PARENT)
    received = {one.message.body: one.message.traceparent for one in await queue.receive(4)}
    assert received.pop("own") == PARENT
    assert {body: (parent or "").rpartition("-")[0] for body, parent in received.items()} == contexts


async def test_a_message_in_a_batch_keeps_the_trace_it_is_given(queue: Queue) -> None:
    await queue.send_batch([NewMessage("relayed", traceparent=PARENT), "own"])
    relayed, own = [one.message.traceparent for one in await queue.receive(2)]
    assert relayed == PARENT
    assert own not in (None, PARENT)


WITHOUT = r"""
import asyncio, sys
sys.modules["opentelemetry"] = None
from peeklock_client import AckPolicy, Client, NewMessage, Worker

async def main(url, parent):
    async with Client(url) as client:
        worker, orders, results = Worker(client), client.queue("untraced"), client.queue("results")

        @worker.on("untraced")
        async def handle(body: str) -> NewMessage:
            await results.send("sent by the handler")
            return NewMessage("returned", queue="results")

        await results.create()
        await client.api.send_message("untraced", {"body": "work"}, traceparent=parent)
        async with worker.lifespan():
            found = []
            while len(found) < 2:
                found += await results.receive_and_delete(2, wait_seconds=20)
        print(*sorted(f"{message.body}: {message.traceparent}" for message in found), sep="\n")

asyncio.run(main(*sys.argv[1:]))
"""


def test_without_opentelemetry_messages_carry_on_the_trace_of_the_processed_one(server_url: str) -> None:
    command = [sys.executable, "-c", WITHOUT, server_url, PARENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == [f"returned: {PARENT}", f"sent by the handler: {PARENT}"], done.stderr
