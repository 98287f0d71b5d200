"""A process serves a limited number of connections. Above it requests are refused, and probes are answered.

A connection that has sent no valid key gives its place to a new one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import cast

import pytest

from app.http.asgi import Receive, Scope, Send
from app.http.authorize import IS_AUTHENTICATED
from app.server.connection import LINGER_SECONDS
from app.server.connection_limit import _SPARE_SECONDS, SPARE_CONNECTIONS, LimitedConnection
from tests.server.connections import CHUNKED, GET, Client, EchoApplication, ReceivedBytes, open_server
from tests.virtual_clock import VirtualClock

LIMIT = 3
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE_BYTES = 16 << 20
"""More than the buffers of a connection hold."""


class ClientGroup:
    """Clients of one server."""

    def __init__(self, port: int, arrived: ReceivedBytes, closing: AsyncExitStack, may_answer: asyncio.Event) -> None:
        self.may_answer = may_answer
        self.arrived = arrived
        self._port = port
        self._closing = closing

    async def client(self) -> Client:
        """Open one more connection, which the server has accepted."""
        self.arrived.changed.clear()
        client = Client(*await asyncio.open_connection("127.0.0.1", self._port), self.arrived)
        self._closing.push_async_callback(client.close)
        await self.arrived.changed.wait()
        return client

    async def clients(self, count: int) -> list[Client]:
        return [await self.client() for _ in range(count)]

    async def authenticated_clients(self, count: int) -> list[Client]:
        """Open connections that have sent a valid key."""
        clients = await self.clients(count)
        for client in clients:
            client.send(GET)
            assert (await client.read_response())[0] == 200
        return clients


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def client_group(clock: VirtualClock) -> AsyncIterator[ClientGroup]:
    """The server answers every request at once, unless a test clears `may_answer`. Only probes and `/docs` need no key."""
    echo, may_answer = EchoApplication(), asyncio.Event()
    may_answer.set()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/":
            scope["state"][IS_AUTHENTICATED] = True
        if scope["path"] == "/large":
            await send_large(send)
            return
        await may_answer.wait()
        await echo(scope, receive, send)

    async with (
        open_server(application, LimitedConnection, clock, LIMIT) as (port, arrived),
        AsyncExitStack() as closing,
    ):
        yield ClientGroup(port, arrived, closing, may_answer)


async def send_large(send: Send) -> None:
    """Answer with more than the buffers take while the client does not read."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % LARGE_BYTES)]})
    await send({"type": "http.response.body", "body": bytes(LARGE_BYTES)})


async def test_connections_up_to_the_limit_are_served_while_others_exceed_it(client_group: ClientGroup) -> None:
    clients = await client_group.authenticated_clients(LIMIT)
    await client_group.clients(2)
    for client in clients * 2:
        client.send(GET)
        assert (await client.read_response())[0] == 200


@pytest.mark.parametrize("request_", [GET, CHUNKED], ids=["no body", "half a body"])
async def test_a_request_above_the_limit_is_refused_with_retry_after(
    client_group: ClientGroup, request_: bytes
) -> None:
    await client_group.authenticated_clients(LIMIT)
    client = await client_group.client()
    client.send(request_)
    status, headers, body = await client.read_response()
    assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
    found = json.loads(body)
    assert (found["code"], found["retryable"], found["retry_after"]) == ("overloaded", True, 1)
    assert await client.is_closed()


async def test_a_probe_above_the_limit_is_answered_once(client_group: ClientGroup) -> None:
    await client_group.authenticated_clients(LIMIT)
    client = await client_group.client()
    client.send(LIVEZ + GET)
    status, headers, body = await client.read_response()
    assert (status, headers["connection"], body) == (200, "close", b"/livez")
    assert await client.is_closed()


async def test_a_closed_connection_frees_its_place(client_group: ClientGroup) -> None:
    first, *_ = await client_group.authenticated_clients(LIMIT)
    first.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert (await first.read_response())[0] == 200
    assert await first.is_closed()
    client = await client_group.client()
    client.send(GET)
    assert (await client.read_response())[0] == 200


async def test_far_above_the_limit_a_probe_replaces_the_longest_idle_connection(
    client_group: ClientGroup, clock: VirtualClock
) -> None:
    await client_group.authenticated_clients(LIMIT)
    oldest = await client_group.client()
    await clock.advance(_SPARE_SECONDS / 2)
    others = await client_group.clients(SPARE_CONNECTIONS - 1)
    client = await client_group.client()
    assert await oldest.problem() == (503, "overloaded")
    for asking in (client, others[0]):
        asking.send(LIVEZ)
        assert (await asking.read_response())[2] == b"/livez"


async def test_every_probe_on_a_spare_connection_is_answered(client_group: ClientGroup) -> None:
    await client_group.authenticated_clients(LIMIT)
    for client in await client_group.clients(SPARE_CONNECTIONS):
        client.send(LIVEZ)
        assert (await client.read_response())[2] == b"/livez"


async def test_far_above_the_limit_a_probe_that_waits_for_its_answer_is_not_replaced(client_group: ClientGroup) -> None:
    await client_group.authenticated_clients(LIMIT)
    client_group.may_answer.clear()
    probes = await client_group.clients(SPARE_CONNECTIONS)
    for probe in probes:
        await probe.send_and_wait(LIVEZ)
    client = await client_group.client()
    assert await client.problem() == (503, "overloaded")
    client_group.may_answer.set()
    assert [(await probe.read_response())[0] for probe in probes] == [200] * SPARE_CONNECTIONS


async def test_far_above_the_limit_a_begun_request_is_not_replaced(
    client_group: ClientGroup,
) -> None:
    await client_group.authenticated_clients(LIMIT)
    for asking in await client_group.clients(SPARE_CONNECTIONS):
        await asking.send_and_wait(LIVEZ[:-2])
    client = await client_group.client()
    assert await client.problem() == (503, "overloaded")


async def test_an_idle_connection_above_the_limit_is_soon_closed(
    client_group: ClientGroup, clock: VirtualClock
) -> None:
    quiet = (await client_group.authenticated_clients(LIMIT))[0]
    client = await client_group.client()
    await clock.advance(_SPARE_SECONDS)
    assert await client.is_closed()
    quiet.send(GET)
    assert (await quiet.read_response())[0] == 200


async def test_many_idle_connections_without_a_key_do_not_keep_out_others(client_group: ClientGroup) -> None:
    unauthenticated = await client_group.clients(LIMIT + 2 * SPARE_CONNECTIONS)
    client = await client_group.client()
    for _ in range(2):
        client.send(GET)
        assert (await client.read_response())[0] == 200
    assert await unauthenticated[0].problem() == (503, "overloaded")


@pytest.mark.parametrize("sent", [b"", GET[:-2], LIVEZ[:9]], ids=["nothing", "a head", "a target"])
async def test_a_new_connection_replaces_the_oldest_without_a_key(
    client_group: ClientGroup, clock: VirtualClock, sent: bytes
) -> None:
    """Also in the middle of a head."""
    oldest = await client_group.client()
    await oldest.send_and_wait(sent)
    await clock.advance(1)
    others = await client_group.clients(LIMIT - 1)
    for client in [*others, await client_group.client()]:
        client.send(GET)
        assert (await client.read_response())[0] == 200
    assert await oldest.problem() == (503, "overloaded")


@pytest.mark.parametrize("path", [b"/echo", b"/early"], ids=["unanswered", "answered"])
async def test_a_connection_without_a_key_is_replaced_while_its_body_does_not_arrive(
    client_group: ClientGroup, clock: VirtualClock, path: bytes
) -> None:
    """The form of a sign-in needs no key."""
    unauthenticated = await client_group.clients(LIMIT)
    for client in unauthenticated:
        await client.send_and_wait(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf" % path)
    if path == b"/early":
        assert [(await client.read_response())[0] for client in unauthenticated] == [200] * LIMIT
    await clock.advance(1)
    await client_group.authenticated_clients(LIMIT)


@pytest.mark.parametrize("requests", [1, 2])
async def test_a_connection_without_a_key_is_replaced_while_it_takes_no_answer(
    client_group: ClientGroup, clock: VirtualClock, requests: int
) -> None:
    """A connection would stay open until its client has taken what was written."""
    for client in await client_group.clients(LIMIT):
        client.send(LARGE * requests)
    await client_group.arrived.until(lambda: client_group.arrived.paused == LIMIT)
    await clock.advance(1)
    await client_group.authenticated_clients(LIMIT)
    await client_group.arrived.until(lambda: client_group.arrived.lost == LIMIT)


async def test_a_connection_is_replaced_only_once(client_group: ClientGroup) -> None:
    """Another new connection may arrive before it has ended."""
    client = await client_group.client()
    client.send(LARGE)
    await client_group.arrived.until(lambda: client_group.arrived.paused == 1)
    connection = cast("LimitedConnection", client_group.arrived.transports[0].get_protocol())
    assert connection.is_evictable
    connection.reject()
    assert not connection.is_evictable


async def test_a_rejected_connection_is_closed_even_if_its_client_reads_nothing(
    client_group: ClientGroup, clock: VirtualClock
) -> None:
    client = await client_group.client()
    client_group.arrived.transports[0].set_write_buffer_limits(high=2 * LARGE_BYTES)
    await client.send_and_wait(LARGE)
    await clock.advance(1)
    await client_group.authenticated_clients(LIMIT)
    await clock.advance(LINGER_SECONDS)
    await client_group.arrived.until(lambda: client_group.arrived.lost == 1)


async def test_a_probe_does_not_authenticate_its_connection(client_group: ClientGroup, clock: VirtualClock) -> None:
    prober = await client_group.client()
    prober.send(LIVEZ)
    assert (await prober.read_response())[0] == 200
    await clock.advance(1)
    await client_group.authenticated_clients(LIMIT)
    assert await prober.problem() == (503, "overloaded")


async def test_an_authenticated_connection_keeps_its_place(client_group: ClientGroup) -> None:
    """Also while it sends a request that needs no key, after others like it."""
    clients = await client_group.authenticated_clients(LIMIT)
    for _ in range(2):
        clients[0].send(LIVEZ)
        assert (await clients[0].read_response())[0] == 200
    await clients[0].send_and_wait(LIVEZ[:9])
    late = await client_group.client()
    late.send(GET)
    assert await late.problem() == (503, "overloaded")
    clients[0].send(LIVEZ[9:])
    assert (await clients[0].read_response())[0] == 200


async def test_a_request_that_is_being_answered_keeps_its_place(client_group: ClientGroup) -> None:
    """Its key may still be looked up."""
    clients = await client_group.clients(LIMIT)
    client_group.may_answer.clear()
    for client in clients:
        await client.send_and_wait(LIVEZ)
    late = await client_group.client()
    late.send(GET)
    assert await late.problem() == (503, "overloaded")
    client_group.may_answer.set()
    assert [(await client.read_response())[0] for client in clients] == [200] * LIMIT
