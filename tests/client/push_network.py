"""A network for pushes in virtual time: it notes each request with its connection, and answers as a test says."""

# ruff: noqa: ASYNC109 - the signatures are those of httpcore

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpcore
import httpx
from peeklock_client import RetryLimits
from peeklock_client.push.addresses import CheckedConnections
from peeklock_client.push.circuit import Circuit
from peeklock_client.push.delivery import Delivery
from peeklock_client.push.options import PushOptions
from peeklock_client.push.rate import Rate
from peeklock_client.push.raw_messages import RawClient
from peeklock_client.push.target import Target, target_url
from peeklock_client.push.worker import push_worker
from peeklock_client.worker.report import WorkerReport

from tests.client.virtual_broker import Broker, other_tasks
from tests.client.virtual_loop import run_virtually

URL = "https://shop.example/hook?key=1"
SECRETS = (bytes(range(32)),)
TLS = httpx.create_ssl_context()
"""Made once, because it reads all certificates."""

START = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
"""The time at which virtual time begins."""


@dataclass
class PushedRequest:
    """One request as the target gets it. Names of headers are in lower case."""

    at: float
    address: str
    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[PushedRequest], Awaitable[bytes]]


def answered(status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    """Return an answer as the target sends it."""
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def always(status: int, headers: dict[str, str] | None = None, body: bytes = b"", seconds: float = 0.0) -> Answer:
    """Return a target that gives the same answer to each request, after this time."""

    async def answer(_: PushedRequest) -> bytes:
        await asyncio.sleep(seconds)
        return answered(status, headers, body)

    return answer


@dataclass
class ScriptedNetwork(httpcore.AsyncNetworkBackend):
    """Every address leads to one target. `refusing` addresses refuse connections, `silent` ones accept none. An
    `untrusted` target has a certificate that is not valid. Reads after an answer raise the `fault`. Writes take as long as
    `bytes_per_second` says.
    """

    answer: Answer
    requests: list[PushedRequest] = field(default_factory=list)
    tls_names: list[str | None] = field(default_factory=list)
    refusing: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    untrusted: bool = False
    unread: bool = False
    fault: Exception | None = None
    bytes_per_second: float | None = None
    now: int = 0
    most: int = 0

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        if host in self.refusing:
            raise httpcore.ConnectError("refused")
        if host in self.silent:
            await asyncio.sleep(timeout or 3600)
            raise httpcore.ConnectTimeout
        return ScriptedStream(self, f"{host}:{port}")


class ScriptedStream(httpcore.AsyncNetworkStream):
    """One connection."""

    def __init__(self, network: ScriptedNetwork, address: str) -> None:
        self._network = network
        self._address = address
        self._written = b""
        self._unread = b""
        self.is_closed = False

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._network.unread:
            await asyncio.sleep(timeout or 3600)
            raise httpcore.WriteTimeout
        if self._network.bytes_per_second is not None:
            seconds = len(buffer) / self._network.bytes_per_second
            try:
                async with asyncio.timeout(timeout):
                    await asyncio.sleep(seconds)
            except TimeoutError:
                raise httpcore.WriteTimeout from None
        self._written += buffer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._written:
            await self._answer(timeout)
        elif not self._unread and self._network.fault is not None:
            raise self._network.fault
        part, self._unread = self._unread[:max_bytes], self._unread[max_bytes:]
        return part

    async def _answer(self, timeout: float | None) -> None:
        head, _, body = self._written.partition(b"\r\n\r\n")
        line, *headers = head.decode("latin-1").split("\r\n")
        given = {name.lower(): value for name, value in (header.split(": ", 1) for header in headers)}
        assert len(body) == int(given["content-length"])
        self._written = b""
        network = self._network
        request = PushedRequest(asyncio.get_running_loop().time(), self._address, line, given, body)
        network.requests.append(request)
        network.now += 1
        network.most = max(network.most, network.now)
        try:
            async with asyncio.timeout(timeout):
                self._unread = await network.answer(request)
        except TimeoutError:
            raise httpcore.ReadTimeout from None
        finally:
            network.now -= 1

    async def aclose(self) -> None:
        self.is_closed = True

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        assert (ssl_context.check_hostname, ssl_context.verify_mode) == (True, ssl.CERT_REQUIRED)
        self._network.tls_names.append(server_hostname)
        if self._network.untrusted:
            raise httpcore.ConnectError("certificate verify failed")
        return self


async def public_address(host: str, port: int) -> list[str]:
    """Resolve every name to an address of the public internet."""
    return ["93.184.215.14"]


def virtual_now() -> datetime:
    return START + timedelta(seconds=asyncio.get_running_loop().time())


def delivery_over(network: ScriptedNetwork, options: PushOptions) -> Delivery:
    """Return the delivery to the target of a scripted network."""
    backend = CheckedConnections(allow_private=False, connections=network, resolve=public_address)
    url = target_url(options.url, allow_private=False)
    target = Target(url, options.limits, options.concurrency, backend=backend, tls=TLS)
    return Delivery(target, options.secrets, Rate(options.rate), Circuit(url.name, options.open_after), now=virtual_now)


@dataclass
class Pushed:
    """What a push has done."""

    report: WorkerReport
    delivery: Delivery


def push(broker: Broker, network: ScriptedNetwork, until: float, grace: float = 60, **fields: Any) -> Pushed:
    """Push the messages of a virtual broker until a time, then stop. No task is left."""

    async def scenario() -> Pushed:
        options = PushOptions(**{"url": URL, "queues": ("orders",), "secrets": SECRETS, **fields})
        delivery = delivery_over(network, options)
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        client = RawClient("http://peeklock.test", http=http, retries=RetryLimits(attempts=2))
        worker = push_worker(options, delivery, client)
        await worker.start()
        await asyncio.sleep(until)
        report = await worker.stop(grace)
        await delivery.target.close()
        assert not other_tasks()
        return Pushed(report, delivery)

    return run_virtually(scenario())


def settlements(broker: Broker) -> list[dict[str, Any]]:
    """Return the settlements that a broker got, without their lock tokens and without renewals."""
    sent = [one for _, _, body in broker.requests for one in body.get("settlements", [])]
    return [
        {name: value for name, value in one.items() if name != "lock_token"} for one in sent if one["action"] != "renew"
    ]
