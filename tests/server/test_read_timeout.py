"""A client that stops within a request is disconnected; no timeout runs for one that waits for the server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from app.server.connection import DISCARD_SECONDS
from app.server.read_timeout import MIN_BYTES_PER_SECOND, TimedConnection
from tests.server.connections import GET, Client, EchoApplication, open_client
from tests.virtual_clock import VirtualClock

TIMEOUT = TimedConnection.timeout_seconds
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n"
EARLY = POST.replace(b"/ ", b"/early ")
WAIT_REQUEST = GET.replace(b"/ ", b"/wait ")


@pytest.fixture
def service() -> EchoApplication:
    return EchoApplication()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def client(service: EchoApplication, clock: VirtualClock) -> AsyncIterator[Client]:
    async with open_client(service, TimedConnection, clock) as client:
        yield client


async def test_a_connection_without_a_request_is_closed(client: Client, clock: VirtualClock) -> None:
    await clock.advance(TIMEOUT)
    assert await client.is_closed()


@pytest.mark.parametrize("half", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\nA", GET + b"GET / HT"])
async def test_half_a_head_is_refused(client: Client, clock: VirtualClock, half: bytes) -> None:
    await client.send_and_wait(half)
    if half.startswith(GET):
        await client.read_response()
    await clock.advance(TIMEOUT)
    assert await client.problem() == (408, "request-timeout")


@pytest.mark.parametrize("rest", [GET[9:], GET[9:] + GET], ids=["the rest", "another request behind it"])
async def test_the_rest_of_a_refused_request_is_dropped(
    client: Client, clock: VirtualClock, service: EchoApplication, rest: bytes
) -> None:
    await client.send_and_wait(GET[:9])
    await clock.advance(TIMEOUT)
    await client.send_and_wait(rest)
    assert await client.problem() == (408, "request-timeout")
    assert not service.begun.is_set()


async def test_a_slow_head_is_refused(client: Client, clock: VirtualClock) -> None:
    await client.send_and_wait(b"GET / HTTP/1.1\r\nHost: ")
    for _ in range(int(TIMEOUT)):
        await client.send_and_wait(b"x")
        await clock.advance(1)
    assert await client.problem() == (408, "request-timeout")


async def test_a_body_has_its_full_time_after_a_slow_head(client: Client, clock: VirtualClock) -> None:
    await client.send_and_wait(POST[:9])
    await clock.advance(TIMEOUT - 1)
    await client.send_and_wait(POST[9:])
    await clock.advance(TIMEOUT - 1)
    client.send(b"x" * 50)
    assert (await client.read_response())[0] == 200


async def test_a_body_that_stops_is_refused_and_disconnects_its_operation(
    client: Client, clock: VirtualClock, service: EchoApplication
) -> None:
    await client.send_and_wait(POST + b"ab")
    await clock.advance(TIMEOUT)
    assert await client.problem() == (408, "request-timeout")
    await service.gone.wait()


async def test_a_long_body_at_the_minimum_rate_is_accepted(client: Client, clock: VirtualClock) -> None:
    await client.send_and_wait(POST.replace(b"50", b"%d" % (10 * MIN_BYTES_PER_SECOND * 20)))
    for _ in range(10):
        await clock.advance(20)
        await client.send_and_wait(b"x" * MIN_BYTES_PER_SECOND * 20)
    assert (await client.read_response())[0] == 200


async def test_a_slow_body_is_refused_and_disconnects_its_operation(
    client: Client, clock: VirtualClock, service: EchoApplication
) -> None:
    """A fast beginning gives a slow body no extra time."""
    await client.send_and_wait(POST.replace(b"50", b"%d" % (16 << 20)) + b"x" * MIN_BYTES_PER_SECOND * 1000)
    for _ in range(int(TIMEOUT) + 5):
        await client.send_and_wait(b"x" * (MIN_BYTES_PER_SECOND // 8))
        await clock.advance(1)
    assert await client.problem() == (408, "request-timeout")
    await service.gone.wait()


async def test_the_rest_of_an_answered_body_has_a_total_timeout(client: Client, clock: VirtualClock) -> None:
    await client.send_and_wait(EARLY)
    assert (await client.read_response())[2] == b"/early"
    for _ in range(int(DISCARD_SECONDS)):
        await client.send_and_wait(b"1")
        await clock.advance(1)
    assert await client.is_closed()


async def test_an_answered_body_that_ends_in_time_keeps_its_connection_open(
    client: Client, clock: VirtualClock
) -> None:
    await client.send_and_wait(EARLY)
    assert (await client.read_response())[2] == b"/early"
    await clock.advance(DISCARD_SECONDS - 1)
    await client.send_and_wait(b"x" * 50)
    await clock.advance(DISCARD_SECONDS)
    client.send(GET)
    assert (await client.read_response())[2] == b"/"


async def test_a_complete_answered_body_leaves_no_idle_connection_open(client: Client, clock: VirtualClock) -> None:
    await client.send_and_wait(EARLY)
    assert (await client.read_response())[2] == b"/early"
    await client.send_and_wait(b"x" * 50)
    await clock.advance(TIMEOUT)
    assert await client.is_closed()


async def test_blank_lines_between_requests_keep_no_connection_open(client: Client, clock: VirtualClock) -> None:
    await client.send_and_wait(GET)
    assert (await client.read_response())[0] == 200
    await clock.advance(TIMEOUT)
    await client.send_and_wait(b"\r\n")
    await clock.advance(TIMEOUT)
    assert await client.is_closed()


@pytest.mark.parametrize("behind", [POST, b"GET / HTTP/1.1\r\nHost: x\r\n"], ids=["a body", "the rest of a head"])
async def test_a_request_behind_an_answer_gets_its_full_timeout_afterwards(
    client: Client, clock: VirtualClock, service: EchoApplication, behind: bytes
) -> None:
    await client.send_and_wait(WAIT_REQUEST + behind)
    await service.begun.wait()
    await clock.advance(TIMEOUT - 1)
    service.may_answer.set()
    assert (await client.read_response())[2] == b"/wait"
    await clock.advance(TIMEOUT - 1)
    client.send(b"x" * 50 if behind is POST else b"\r\n")
    assert (await client.read_response())[2] == b"/"


@pytest.mark.parametrize(
    ("behind", "rest"),
    [(b"", GET), (GET[:8], GET[8:]), (POST + b"ab", b"x" * 48)],
    ids=["alone", "half a head", "half a body"],
)
@pytest.mark.parametrize("ahead", [b"", GET], ids=["first", "second"])
async def test_no_timeout_runs_while_a_client_waits_for_an_answer(
    client: Client, clock: VirtualClock, service: EchoApplication, ahead: bytes, behind: bytes, rest: bytes
) -> None:
    await client.send_and_wait(ahead + WAIT_REQUEST + behind)
    if ahead:
        assert (await client.read_response())[2] == b"/"
    await service.begun.wait()
    await clock.advance(TIMEOUT * 3)
    service.may_answer.set()
    assert (await client.read_response())[2] == b"/wait"
    client.send(rest)
    assert (await client.read_response())[2] == b"/"


async def test_no_timeout_runs_while_the_server_does_not_read(
    client: Client, clock: VirtualClock, service: EchoApplication
) -> None:
    body = b"x" * (HIGH_WATER_LIMIT + 1)
    await client.send_and_wait(POST.replace(b"/ ", b"/late ").replace(b"50", b"%d" % (len(body) + 1)) + body)
    await clock.advance(TIMEOUT * 3)
    service.may_read.set()
    client.send(b"x")
    assert (await client.read_response())[2] == b"/late"


async def test_no_timeout_runs_while_a_client_waits_for_100_continue(
    client: Client, clock: VirtualClock, service: EchoApplication
) -> None:
    await client.send_and_wait(b"POST /late HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    await service.begun.wait()
    await clock.advance(TIMEOUT * 3 - 1)
    service.may_read.set()
    assert (await client.read_response())[0] == 100
    await clock.advance(TIMEOUT - 1)
    client.send(b"hello")
    assert (await client.read_response())[0] == 200
