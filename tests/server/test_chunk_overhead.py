"""The bytes of a request besides head and content are bounded: trailers, chunk extensions, an unread rest."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.server.chunk_overhead import BYTES_PER_CHUNK, MAX_SMALL_CHUNKS, MIN_BYTES_PER_CHUNK
from app.server.connection import LINGER_SECONDS, MAX_DISCARD_BYTES, Connection
from app.server.request_errors import MAX_HEAD_BYTES
from tests.server.connections import GET, Client, EchoApplication, open_client
from tests.virtual_clock import VirtualClock

FIELDS = b"POST /fields HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
ECHO = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
EARLY = ECHO.replace(b"/echo", b"/early")
PIECE = 16 << 10


@pytest.fixture
def service() -> EchoApplication:
    return EchoApplication()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def client(service: EchoApplication, clock: VirtualClock) -> AsyncIterator[Client]:
    async with open_client(service, Connection, clock) as client:
        yield client


async def test_the_content_of_chunks_is_no_overhead(client: Client) -> None:
    size = MAX_HEAD_BYTES // 2
    await client.send_and_wait(ECHO)
    for _ in range(4):
        await client.send_and_wait(b"%x\r\n%s\r\n" % (size, b"x" * size))
    client.send(b"0\r\n\r\n")
    assert (await client.read_response())[2] == b"x" * size * 4


@pytest.mark.parametrize("pieces", [1, 2])
async def test_trailers_are_dropped(client: Client, service: EchoApplication, pieces: int) -> None:
    trailers = b"Authorization: Bearer x\r\nHost: y\r\nExpect: 100-continue\r\nPeeklock-Subject: z\r\n\r\n"
    request = FIELDS.replace(b"/fields", b"/late")
    await client.send_and_wait(request.replace(b"POST /late", b"POST /fields") + trailers)
    assert (await client.read_response())[2] == b"host,transfer-encoding"
    for piece in (request, trailers) if pieces == 2 else (request + trailers,):
        await client.send_and_wait(piece)
    service.may_read.set()
    client.send(GET)
    assert [(await client.read_response())[2] for _ in range(2)] == [b"/late", b"/"]


async def test_trailers_count_towards_the_limit_of_the_head(client: Client) -> None:
    half = b"A: " + b"a" * (MAX_HEAD_BYTES // 2) + b"\r\n"
    client.send(FIELDS + half + b"\r\n")
    assert (await client.read_response())[0] == 200
    client.send(FIELDS.replace(b"Host", half + b"Host") + half + b"\r\n")
    assert await client.problem() == (431, "headers-too-large")


@pytest.mark.parametrize("count", [1, 1000])
async def test_trailers_that_are_too_large_are_refused_before_the_request_is_answered(
    client: Client, service: EchoApplication, count: int
) -> None:
    trailers = b"".join(b"A%d: %s\r\n" % (n, b"b" * (MAX_HEAD_BYTES // count)) for n in range(count))
    client.send(FIELDS + trailers + b"\r\n")
    assert await client.problem() == (431, "headers-too-large")
    await service.gone.wait()


@pytest.mark.parametrize("piece", [b"a" * PIECE, b"a: " + b"b" * PIECE + b"\r\n"], ids=["one field", "many"])
async def test_endless_trailers_are_refused_while_they_arrive(client: Client, piece: bytes) -> None:
    client.send(FIELDS)
    for _ in range(MAX_HEAD_BYTES // PIECE * 8):
        client.send(piece)
    assert await client.problem() == (431, "headers-too-large")


@pytest.mark.parametrize(
    "piece",
    [
        b"1;" + b"a" * PIECE + b"\r\nx\r\n",
        (b"1;" + b"a" * 3 * BYTES_PER_CHUNK + b"\r\nx\r\n") * (PIECE // (4 * BYTES_PER_CHUNK)),
        b"0" * PIECE + b"1\r\nx\r\n",
        b"1;" + b"a" * PIECE,
    ],
    ids=["extensions", "short extensions", "zeros", "endless"],
)
async def test_chunks_with_more_framing_than_content_are_refused(client: Client, piece: bytes) -> None:
    client.send(ECHO)
    for _ in range(MAX_HEAD_BYTES // PIECE * 16):
        client.send(piece)
    assert await client.problem() == (431, "headers-too-large")


async def test_many_small_chunks_are_accepted(client: Client) -> None:
    client.send(ECHO + b"00000001;a=b\r\nx\r\n" * MAX_SMALL_CHUNKS + b"0\r\n\r\n")
    assert (await client.read_response())[2] == b"x" * MAX_SMALL_CHUNKS


async def test_a_large_body_may_have_more_chunks(client: Client) -> None:
    count = 2 * MAX_SMALL_CHUNKS
    chunk = b"%x\r\n%b\r\n" % (MIN_BYTES_PER_CHUNK, b"x" * MIN_BYTES_PER_CHUNK)
    client.send(ECHO + chunk * count + b"0\r\n\r\n")
    assert len((await client.read_response())[2]) == MIN_BYTES_PER_CHUNK * count


async def test_endless_chunks_of_one_byte_are_refused(client: Client) -> None:
    client.send(ECHO + b"1\r\nx\r\n" * 2 * MAX_SMALL_CHUNKS)
    assert await client.problem() == (413, "message-too-large")


async def test_the_rest_of_an_answered_body_is_read_up_to_a_limit(client: Client) -> None:
    client.send(EARLY + b"5\r\nhello\r\n")
    assert (await client.read_response())[2] == b"/early"
    client.send(b"%x\r\n" % (MAX_DISCARD_BYTES // 2) + b"x" * (MAX_DISCARD_BYTES // 2) + b"\r\n0\r\n\r\n" + GET)
    assert (await client.read_response())[2] == b"/"


@pytest.mark.parametrize("piece", [b"4000\r\n" + b"x" * 0x4000 + b"\r\n", b"1;" + b"a" * PIECE])
async def test_an_answered_body_is_not_read_beyond_the_limit(client: Client, clock: VirtualClock, piece: bytes) -> None:
    client.send(EARLY + b"5\r\nhello\r\n")
    assert (await client.read_response())[2] == b"/early"
    for _ in range(MAX_DISCARD_BYTES // PIECE * 64):
        client.send(piece)
    assert await client.is_closed()
    await clock.advance(LINGER_SECONDS)
    assert await client.is_reset()
    assert client.received_bytes <= 4 * MAX_DISCARD_BYTES
