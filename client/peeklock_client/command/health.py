"""The health and the metrics of a worker's process over HTTP, for Kubernetes and Prometheus.

The event loop of the worker answers, so a handler that blocks the loop makes the probe fail. A server in a thread, as
prometheus_client has it, would still answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from functools import partial

from peeklock_client.worker.report import WorkerReport
from peeklock_client.worker.worker import Worker

MAX_HEAD_BYTES = 8 << 10
READ_SECONDS = 5.0
TEXT = "text/plain; version=0.0.4; charset=utf-8"


def nothing() -> str:
    """Return no text."""
    return ""


@dataclass(frozen=True, slots=True)
class Extra:
    """What a worker reports beside its own state: a line for people after "ready", and further metrics."""

    state: Callable[[], str] = nothing
    metrics: Callable[[], str] = nothing


@asynccontextmanager
async def serve_health(worker: Worker, host: str, port: int | None, extra: Extra | None = None) -> AsyncGenerator[None]:
    """Answer `/livez`, `/readyz` and `/metrics` while the block runs, if there is a port."""
    if port is None:
        yield
        return
    answer = partial(_answer_one, worker, extra or Extra())
    server = await asyncio.start_server(answer, host, port, limit=MAX_HEAD_BYTES)
    async with server:
        yield


async def _answer_one(worker: Worker, extra: Extra, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request, and close its connection."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            status, text = _answer(worker, extra, head.split(b" ", 2)[1].decode("latin-1"))
            body = text.encode()
            writer.write(f"HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(body)}\r\n".encode())
            writer.write(b"Connection: close\r\n\r\n" + body)
            await writer.drain()
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, OSError):
        pass  # the client sent no valid request, or disconnected
    finally:
        writer.close()


def _answer(worker: Worker, extra: Extra, path: str) -> tuple[str, str]:
    match path:
        case "/livez":
            return "200 OK", "alive\n"
        case "/readyz":
            return (
                ("200 OK", f"ready\n{extra.state()}")
                if worker.is_running
                else ("503 Service Unavailable", "not ready\n")
            )
        case "/metrics":
            return "200 OK", metrics_of(worker.report) + extra.metrics()
        case _:
            return "404 Not Found", "not found\n"


def metrics_of(report: WorkerReport) -> str:
    """Return the counts of a report in the text format of Prometheus."""
    lines = [
        "# HELP peeklock_worker_messages_total Messages by outcome.",
        "# TYPE peeklock_worker_messages_total counter",
    ]
    lines += [
        f'peeklock_worker_messages_total{{outcome="{field.name}"}} {getattr(report, field.name)}'
        for field in fields(report)
    ]
    return "\n".join(lines) + "\n"
