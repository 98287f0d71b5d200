"""The options of `peeklock-worker --push`, and the run of a worker that pushes."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any, cast

from peeklock_client.push.delivery import Delivery
from peeklock_client.push.errors import InvalidPush
from peeklock_client.push.options import PushOptions
from peeklock_client.push.raw_messages import RawClient
from peeklock_client.push.reports import Reports, consumer_name
from peeklock_client.push.signing import SECRET_VARIABLE, secrets_of
from peeklock_client.push.target import TimeLimits
from peeklock_client.push.worker import delivery_of, push_worker
from peeklock_client.worker.worker import Worker

DEFAULTS = PushOptions("https://example.com", ("orders",), ())
LIMITS = TimeLimits()
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "push": {
        "metavar": "URL",
        "help": f"instead of a worker, call this URL for each message; {SECRET_VARIABLE} has the secret that signs the calls",
    },
    "queue": {"action": "append", "metavar": "NAME", "help": "a queue whose messages are pushed; may be repeated"},
    "filter": {"metavar": "CEL", "help": "push only the messages that match this filter"},
    "concurrency": {
        "type": int, "metavar": "NUMBER", "help": f"requests at a time, in each process (default: {DEFAULTS.concurrency})",
    },
    "rate": {"type": float, "metavar": "NUMBER", "help": "requests per second, in each process (default: no limit)"},
    "batch": {
        "type": int, "metavar": "NUMBER",
        "help": "send up to this number of messages in one request, as CloudEvents in a JSON batch",
    },
    "allow-private": {
        "action": "store_true", "default": None, "help": "allow private, loopback and link-local addresses",
    },
    "connect-seconds": {
        "type": float, "metavar": "SECONDS", "help": f"limit for a connection, and for TLS on it (default: {LIMITS.connect:g})",
    },
    "send-seconds": {
        "type": float, "metavar": "SECONDS", "help": f"limit for each 64 KiB of a request (default: {LIMITS.send:g})",
    },
    "answer-seconds": {
        "type": float, "metavar": "SECONDS",
        "help": f"limit for the first byte of an answer, and between its parts (default: {LIMITS.answer:g})",
    },
    "total-seconds": {
        "type": float, "metavar": "SECONDS", "help": f"limit for a request as a whole (default: {LIMITS.total:g})",
    },
    "open-after": {
        "type": int, "metavar": "NUMBER",
        "help": f"failures in a row after which no more messages are received until a try succeeds (default: {DEFAULTS.open_after})",
    },
    "receiver-id": {
        "metavar": "ID", "help": "receive at the start what an earlier run held under this id; each process has its own",
    },
}  # fmt: skip
"""The options by their names, with the arguments of `add_argument`. None is the default of each."""


@dataclass(frozen=True, slots=True)
class Push:
    """A worker that pushes, with what it reports beside the counts of its messages."""

    worker: Worker
    delivery: Delivery
    client: RawClient
    reports: Reports

    @asynccontextmanager
    async def connections(self) -> AsyncGenerator[None]:
        """Report to the server until the end of the block, and close all connections there."""
        try:
            async with self.reports.repeated():
                yield
        finally:
            await self.delivery.target.close()
            await self.client.close()

    def state(self) -> str:
        """Return the state of the circuit as a line for people, empty while it is closed."""
        return f"the circuit of {self.delivery.target.name} is open\n" if self.delivery.circuit.is_open else ""

    def metrics(self) -> str:
        """Return the counts of requests and the state of the circuit in the text format of Prometheus."""
        counts, circuit = self.delivery.counts, self.delivery.circuit
        lines = [
            "# HELP peeklock_push_requests_total Requests to the target by outcome.",
            "# TYPE peeklock_push_requests_total counter",
            *(
                f'peeklock_push_requests_total{{outcome="{field.name}"}} {getattr(counts, field.name)}'
                for field in fields(counts)
            ),
            "# HELP peeklock_push_circuit_open 1 while no messages are received because the target fails, otherwise 0.",
            "# TYPE peeklock_push_circuit_open gauge",
            f"peeklock_push_circuit_open {int(circuit.is_open)}",
            "# HELP peeklock_push_circuit_opened_total How often the circuit has opened.",
            "# TYPE peeklock_push_circuit_opened_total counter",
            f"peeklock_push_circuit_opened_total {circuit.opened}",
        ]
        return "\n".join(lines) + "\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a push."""
    group = parser.add_argument_group("push", "Call an HTTP endpoint for each message, without a module.")
    for name, arguments in OPTIONS.items():
        group.add_argument(f"--{name}", **arguments)


def given_options(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a push that the command line has, by their names."""
    values = {name: getattr(chosen, name.replace("-", "_")) for name in OPTIONS}
    return {name: value for name, value in values.items() if value is not None}


def check_options(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    """End the command with its usage unless it names a worker or a push, and options of the one it names."""
    given = given_options(chosen)
    if (chosen.target is None) == ("push" not in given):
        parser.error("name a worker as MODULE:WORKER, or a URL with --push")
    if "push" not in given and given:
        parser.error(f"--{next(iter(given))} needs --push")
    if "push" in given and "queue" not in given:
        parser.error("--push needs a --queue")
    if "push" in given and chosen.reload:
        parser.error("--reload needs a worker as MODULE:WORKER")


def command_line(chosen: argparse.Namespace) -> list[str]:
    """Return the arguments that make another process push in the same way."""
    words: list[str] = []
    for name, value in given_options(chosen).items():
        words += [f"--{name}"] if value is True else [f"--{name}={one}" for one in _several(value)]
    return words


def push_of(chosen: argparse.Namespace) -> Push:
    """Return the push that the command line asks for. Raises `InvalidPush`."""
    given = given_options(chosen)
    limits = {
        name: given.pop(f"{name}-seconds", getattr(LIMITS, name)) for name in ("connect", "send", "answer", "total")
    }
    options = PushOptions(
        given.pop("push"),
        tuple(given.pop("queue")),
        secrets_of(os.environ.get(SECRET_VARIABLE, "")),
        limits=TimeLimits(**limits),
        **{name.replace("-", "_"): value for name, value in given.items()},
    )
    delivery = delivery_of(options)
    try:
        client = RawClient()
    except ValueError as error:  # of PEEKLOCK_URL or PEEKLOCK_API_KEY
        raise InvalidPush(str(error)) from None
    reports = Reports(
        client.api, options.queues, delivery.target.name, delivery.circuit, consumer_name(socket.gethostname())
    )
    return Push(push_worker(options, delivery, client), delivery, client, reports)


def _several(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]
