"""The server knows no other protocol. It ignores an offer to upgrade, and reads the body of the request."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from app.server.connection import Connection
from tests.server.connections import GET, Client, EchoApplication, open_client

OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
    "h2c alone": b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "websocket": b"Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n",
    "several": b"Upgrade: h2c, websocket/13\r\nConnection: upgrade\r\n",
}
BODIES = {
    "a length": b"Content-Length: 5\r\n\r\nhello",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "chunks and trailers": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
}
NEXT = GET.replace(b"/ ", b"/next ")

offers = pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
bodies = pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)


@pytest.fixture
def service() -> EchoApplication:
    return EchoApplication()


@pytest.fixture
async def client(service: EchoApplication) -> AsyncIterator[Client]:
    async with open_client(service, Connection) as client:
        yield client


def echo(offer: bytes, body: bytes) -> bytes:
    """A request that is answered with its body."""
    return b"POST /echo HTTP/1.1\r\nHost: x\r\n" + offer + body


async def is_received(client: Client, *bodies: bytes) -> None:
    assert [(await client.read_response())[2] for _ in bodies] == [*bodies]


@offers
@bodies
async def test_the_body_is_read(client: Client, offer: bytes, body: bytes) -> None:
    client.send(echo(offer, body) + NEXT)
    await is_received(client, b"hello", b"/next")


@offers
@bodies
async def test_the_body_is_read_at_every_split_of_the_request(client: Client, offer: bytes, body: bytes) -> None:
    request = echo(offer, body)
    for cut in range(1, len(request)):
        await client.send_and_wait(request[:cut])
        client.send(request[cut:] + NEXT)
        await is_received(client, b"hello", b"/next")


@offers
@bodies
async def test_the_body_is_read_byte_by_byte(client: Client, offer: bytes, body: bytes) -> None:
    for byte in echo(offer, body) + NEXT:
        await client.send_and_wait(bytes((byte,)))
    await is_received(client, b"hello", b"/next")


@offers
async def test_a_request_without_a_body_is_answered(client: Client, offer: bytes) -> None:
    client.send(NEXT[:-2] + offer + b"\r\n" + GET)
    await is_received(client, b"/next", b"/")


async def test_each_request_of_a_connection_may_offer_an_upgrade(client: Client) -> None:
    for offer in OFFERS.values():
        await client.send_and_wait(echo(offer, BODIES["a length"]) + NEXT[:-2] + offer + b"\r\n" + GET)
        await is_received(client, b"hello", b"/next", b"/")
    client.send(b"".join(echo(offer, body) for offer in OFFERS.values() for body in BODIES.values()))
    await is_received(client, *[b"hello"] * (len(OFFERS) * len(BODIES)))


@offers
async def test_a_broken_body_is_refused(client: Client, offer: bytes) -> None:
    client.send(echo(offer, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"))
    assert await client.problem() == (400, "malformed-request")


@offers
async def test_two_content_lengths_are_refused(client: Client, offer: bytes) -> None:
    client.send(echo(offer, b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello"))
    assert await client.problem() == (400, "malformed-request")


@pytest.mark.parametrize("target", [b"/echo", b"x:80", b"http://x/echo"])
async def test_a_connect_request_is_refused(client: Client, service: EchoApplication, target: bytes) -> None:
    client.send(b"CONNECT " + target + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" + NEXT)
    assert await client.problem() == (400, "malformed-request")
    assert not service.begun.is_set()


async def test_bytes_of_another_protocol_are_refused(client: Client) -> None:
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert await client.problem() == (400, "malformed-request")


async def test_an_upgrade_offer_logs_nothing(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        client.send(echo(OFFERS["h2c"], BODIES["a length"]) + echo(OFFERS["websocket"], BODIES["chunks"]))
        await is_received(client, b"hello", b"hello")
    assert [record for record in caplog.records if record.name == "uvicorn.error"] == []
