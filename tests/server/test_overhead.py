"""What a request carries besides its header and its content is bounded: trailers, chunk extensions, an unread rest."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.server.connection import LARGEST_HEAD, LARGEST_REST, LINGER_SECONDS, Connection
from tests.clock import VirtualClock
from tests.server.connections import GET, Client, Service, connected

FIELDS = b"POST /fields HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
ECHO = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
EARLY = ECHO.replace(b"/echo", b"/early")
PIECE = 16 << 10


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def client(service: Service, clock: VirtualClock) -> AsyncIterator[Client]:
    async with connected(service, Connection, clock) as client:
        yield client


@pytest.mark.parametrize("pieces", [1, 2])
async def test_trailers_are_dropped(client: Client, service: Service, pieces: int) -> None:
    trailers = b"Authorization: Bearer x\r\nHost: y\r\nExpect: 100-continue\r\nPeeklock-Subject: z\r\n\r\n"
    request = FIELDS.replace(b"/fields", b"/late")
    await client.tell(request.replace(b"POST /late", b"POST /fields") + trailers)
    assert (await client.hear())[2] == b"host,transfer-encoding"
    for piece in (request, trailers) if pieces == 2 else (request + trailers,):
        await client.tell(piece)
    service.may_read.set()
    client.say(GET)
    assert [(await client.hear())[2] for _ in range(2)] == [b"/late", b"/"]


async def test_trailers_count_into_the_limit_of_the_head(client: Client) -> None:
    half = b"A: " + b"a" * (LARGEST_HEAD // 2) + b"\r\n"
    client.say(FIELDS + half + b"\r\n")
    assert (await client.hear())[0] == 200
    client.say(FIELDS.replace(b"Host", half + b"Host") + half + b"\r\n")
    assert await client.problem() == (431, "headers-too-large")


@pytest.mark.parametrize("count", [1, 1000])
async def test_trailers_that_are_too_large_are_refused_before_the_request_is_answered(
    client: Client, service: Service, count: int
) -> None:
    trailers = b"".join(b"A%d: %s\r\n" % (n, b"b" * (LARGEST_HEAD // count)) for n in range(count))
    client.say(FIELDS + trailers + b"\r\n")
    assert await client.problem() == (431, "headers-too-large")
    await service.gone.wait()


@pytest.mark.parametrize("piece", [b"a" * PIECE, b"a: " + b"b" * PIECE + b"\r\n"], ids=["one field", "many"])
async def test_trailers_that_never_end_are_refused_on_their_way(client: Client, piece: bytes) -> None:
    client.say(FIELDS)
    for _ in range(LARGEST_HEAD // PIECE * 8):
        client.say(piece)
    assert await client.problem() == (431, "headers-too-large")


@pytest.mark.parametrize(
    "piece", [b"1;" + b"a" * PIECE + b"\r\nx\r\n", b"0" * PIECE + b"1\r\nx\r\n", b"1;" + b"a" * PIECE], ids=["extensions", "zeros", "endless"]
)  # fmt: skip
async def test_chunks_with_more_framing_than_content_are_refused(client: Client, piece: bytes) -> None:
    client.say(ECHO)
    for _ in range(LARGEST_HEAD // PIECE * 16):
        client.say(piece)
    assert await client.problem() == (431, "headers-too-large")


async def test_small_chunks_are_taken_however_many(client: Client) -> None:
    count = LARGEST_HEAD
    client.say(ECHO + b"00000001;a=b\r\nx\r\n" * count + b"0\r\n\r\n")
    assert (await client.hear())[2] == b"x" * count


async def test_the_rest_of_an_answered_body_is_read_within_a_bound(client: Client) -> None:
    client.say(EARLY + b"5\r\nhello\r\n")
    assert (await client.hear())[2] == b"/early"
    client.say(b"%x\r\n" % (LARGEST_REST // 2) + b"x" * (LARGEST_REST // 2) + b"\r\n0\r\n\r\n" + GET)
    assert (await client.hear())[2] == b"/"


@pytest.mark.parametrize("piece", [b"4000\r\n" + b"x" * 0x4000 + b"\r\n", b"1;" + b"a" * PIECE])
async def test_no_more_is_read_of_an_answered_body_than_its_bound(
    client: Client, clock: VirtualClock, piece: bytes
) -> None:
    client.say(EARLY + b"5\r\nhello\r\n")
    assert (await client.hear())[2] == b"/early"
    for _ in range(LARGEST_REST // PIECE * 64):
        client.say(piece)
    assert await client.is_hung_up()
    await clock.advance(LINGER_SECONDS)
    assert await client.is_cut()
    assert client.arrived <= 4 * LARGEST_REST
