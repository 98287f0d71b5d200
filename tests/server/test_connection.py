"""An invalid request is answered with a problem document, in order, and within limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.http.asgi import Receive, Scope, Send
from app.server.connection import MAX_DISCARD_BYTES, Connection
from app.server.request_errors import MAX_HEAD_BYTES, MAX_URL_BYTES
from tests.server.connections import CHUNKED, GET, Client, EchoApplication, open_client, open_server
from tests.servers import TIMEOUT_SECONDS
from tests.virtual_clock import VirtualClock


@pytest.fixture
def service() -> EchoApplication:
    return EchoApplication()


@pytest.fixture
async def client(service: EchoApplication) -> AsyncIterator[Client]:
    """A client of a server whose time stands still, so that no timeout ends a connection."""
    async with open_client(service, Connection, VirtualClock()) as client:
        yield client


MALFORMED = {
    "an unknown method": b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a path that is not ASCII": "GET /é HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    "a chunk without a size": CHUNKED + b"zz\r\nhello\r\n",
    "a control byte in a header": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x01c\r\n\r\n",
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00",
}


@pytest.mark.parametrize("request_", MALFORMED.values(), ids=MALFORMED)
async def test_an_invalid_request_is_answered_with_a_problem(client: Client, request_: bytes) -> None:
    client.send(request_)
    assert await client.problem() == (400, "malformed-request")


@pytest.mark.parametrize("hosts", [b"", b"Host: x\r\nHost: y\r\n"], ids=["none", "two"])
async def test_a_request_without_exactly_one_host_is_refused(client: Client, hosts: bytes) -> None:
    client.send(b"GET / HTTP/1.1\r\n" + hosts + b"\r\n")
    assert await client.problem() == (400, "malformed-request")


async def test_blanks_around_a_field_value_are_stripped(client: Client) -> None:
    client.send(CHUNKED.replace(b" chunked", b" chunked  ") + b"0\r\n\r\n")
    assert (await client.read_response())[0] == 200


async def test_a_transfer_coding_may_be_written_in_any_case(client: Client) -> None:
    client.send(CHUNKED.replace(b"chunked", b"Chunked") + b"0\r\n\r\n")
    assert (await client.read_response())[0] == 200


async def test_a_request_of_http_1_0_needs_no_host(client: Client) -> None:
    client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert (await client.read_response())[0] == 200


async def test_an_unknown_transfer_coding_is_refused(client: Client, service: EchoApplication) -> None:
    client.send(CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n")
    assert await client.problem() == (501, "unknown-transfer-coding")
    assert not service.begun.is_set()


@pytest.mark.parametrize("size", [MAX_URL_BYTES + 1, 70_000, 1_000_000])
async def test_a_target_above_the_limit_is_refused(client: Client, size: int) -> None:
    client.send(b"GET /" + b"a" * (size - 1) + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await client.problem() == (414, "url-too-long")


async def test_an_endless_target_is_refused_while_it_arrives(client: Client) -> None:
    client.send(b"GET /" + b"a" * MAX_URL_BYTES)
    assert await client.problem() == (414, "url-too-long")


async def test_a_target_at_the_limit_is_accepted(client: Client) -> None:
    client.send(b"GET /" + b"a" * (MAX_URL_BYTES - 1) + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await client.read_response())[0] == 200


@pytest.mark.parametrize("count", [1, 1000])
async def test_too_many_header_fields_are_refused(client: Client, count: int) -> None:
    fields = b"".join(b"A%d: %s\r\n" % (n, b"b" * (MAX_HEAD_BYTES // count)) for n in range(count))
    client.send(b"GET / HTTP/1.1\r\n" + fields + b"\r\n")
    assert await client.problem() == (431, "headers-too-large")


async def test_endless_header_fields_are_refused_while_they_arrive(client: Client, service: EchoApplication) -> None:
    client.send(b"GET / HTTP/1.1\r\nA: ")
    for _ in range(64):
        client.send(b"b" * (16 << 10))
    assert await client.problem() == (431, "headers-too-large")
    assert not service.begun.is_set()


async def test_a_large_head_is_accepted_after_a_large_request(client: Client) -> None:
    body = b"x" * 200_000
    head = b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * (MAX_HEAD_BYTES - 100) + b"\r\n\r\n"
    client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body + head)
    assert [(await client.read_response())[0] for _ in range(2)] == [200, 200]


async def test_a_head_split_after_a_large_body_is_read(client: Client) -> None:
    body = b"x" * (MAX_HEAD_BYTES + 2000)
    await client.send_and_wait(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body + GET[:9])
    assert (await client.read_response())[0] == 200
    client.send(GET[9:])
    assert (await client.read_response())[0] == 200


async def test_heads_in_pieces_may_be_larger_together_than_one_may_be(client: Client) -> None:
    for _ in range(3):
        await client.send_and_wait(b"GET / HTTP/1.1\r\nHost: x\r\nA: ")
        await client.send_and_wait(b"b" * (MAX_HEAD_BYTES // 2))
        client.send(b"\r\n\r\n")
        assert (await client.read_response())[0] == 200


@pytest.mark.parametrize("expected", [b"100-continue", b"100-Continue"])
async def test_a_client_that_expects_100_continue_gets_it(client: Client, expected: bytes) -> None:
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: " + expected + b"\r\n\r\n")
    assert (await client.read_response())[0] == 100
    client.send(b"hello")
    assert (await client.read_response())[2] == b"hello"


async def test_an_answer_to_head_has_no_body(client: Client) -> None:
    client.send(GET.replace(b"GET", b"HEAD"))
    status, headers = await client.read_head()
    assert (status, headers["content-length"]) == (200, "1")
    client.send(GET.replace(b"/ ", b"/next "))
    assert (await client.read_response())[2] == b"/next"


HEAD_REQUESTS = {
    "a target above the limit": b"HEAD /" + b"a" * MAX_URL_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "too many bytes of header fields": b"HEAD / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * MAX_HEAD_BYTES + b"\r\n\r\n",
    "no host": b"HEAD / HTTP/1.1\r\n\r\n",
    "a control byte in a header": b"HEAD / HTTP/1.1\r\nHost: x\r\nA: b\x01c\r\n\r\n",
}


@pytest.mark.parametrize("request_", HEAD_REQUESTS.values(), ids=HEAD_REQUESTS)
async def test_a_refusal_of_head_has_no_body(client: Client, request_: bytes) -> None:
    client.send(request_)
    status, headers = await client.read_head()
    assert 400 <= status < 500
    assert int(headers["content-length"]) > 0
    assert await client.is_closed()


async def test_an_invalid_request_after_head_is_answered_with_a_body(client: Client) -> None:
    client.send(GET.replace(b"GET", b"HEAD"))
    await client.read_head()
    client.send(MALFORMED["no HTTP at all"])
    assert await client.problem() == (400, "malformed-request")


async def test_the_request_id_of_the_caller_is_returned(client: Client) -> None:
    client.send(CHUNKED + b"zz\r\n")
    assert (await client.read_response())[1]["x-request-id"] == "mine"


async def test_an_operation_that_reads_a_broken_body_sees_a_disconnect(
    client: Client, service: EchoApplication
) -> None:
    client.send(CHUNKED)
    await service.begun.wait()
    client.send(b"zz\r\n")
    assert await client.problem() == (400, "malformed-request")
    await service.gone.wait()


@pytest.mark.parametrize("bad", [b"BREW / HTTP/1.1\r\n\r\n", CHUNKED + b"zz\r\n"], ids=["head", "body"])
async def test_an_invalid_request_is_answered_after_the_requests_ahead_of_it(
    client: Client, service: EchoApplication, bad: bytes
) -> None:
    client.send(GET.replace(b"/ ", b"/wait ") + GET.replace(b"/ ", b"/next ") + bad)
    await service.begun.wait()
    service.may_answer.set()
    assert [(await client.read_response())[2] for _ in range(2)] == [b"/wait", b"/next"]
    assert await client.problem() == (400, "malformed-request")


async def test_a_refusal_is_not_written_into_an_answer_that_has_begun(client: Client) -> None:
    client.send(CHUNKED.replace(b"/ ", b"/begun "))
    await client.read_head()
    client.send(b"zz\r\n")
    assert await client.read_rest() == b"/be"


async def test_bodies_that_no_operation_reads_are_limited_one_at_a_time(client: Client) -> None:
    body = b"x" * (MAX_DISCARD_BYTES // 2)
    for _ in range(3):
        await client.send_and_wait(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert (await client.read_response())[2] == b"/early"
        await client.send_and_wait(body[:-1])
        await client.send_and_wait(body[-1:])
    client.send(GET)
    assert (await client.read_response())[2] == b"/"


async def test_an_answer_before_100_continue_closes_the_connection(client: Client) -> None:
    client.send(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert (await client.read_response())[2] == b"/early"
    assert await client.is_closed()


async def test_an_operation_learns_of_a_disconnect_also_with_a_later_request_behind_it() -> None:
    """Otherwise it writes to a closed connection."""
    service = EchoApplication()
    async with open_server(service, Connection, VirtualClock()) as (port, received):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET.replace(b"/ ", b"/late ") + GET)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await service.begun.wait()
            received.transports[0].abort()
            await received.until(lambda: received.lost == 1)
            service.may_read.set()
            await service.gone.wait()
        writer.close()


async def test_a_disconnect_wakes_an_operation_also_with_a_later_request_behind_it() -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        begun.set()
        if (await receive())["type"] == "http.disconnect":
            gone.set()

    async with open_server(application, Connection, VirtualClock()) as (port, received):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET * 2)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await begun.wait()
            received.transports[0].abort()
            await gone.wait()
        writer.close()
