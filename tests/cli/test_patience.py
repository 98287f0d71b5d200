"""A client that stops in the middle is hung up on in time; one that waits for the server is left in peace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.cli.patience import Patient
from tests.cli.connections import GET, Client, Service, connected

POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n"
WAIT = GET.replace(b"/ ", b"/wait ")


class Hasty(Patient):
    """A connection that waits for its client about as long as a test may take."""

    seconds = 0.1


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def client(service: Service) -> AsyncIterator[Client]:
    async with connected(service, Hasty) as client:
        yield client


async def test_a_client_that_says_nothing_is_hung_up_on(client: Client) -> None:
    assert await client.is_hung_up()


@pytest.mark.parametrize("half", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\nA", GET + b"GET / HT"])
async def test_half_a_head_is_refused(client: Client, half: bytes) -> None:
    client.say(half)
    if half.startswith(GET):
        await client.hear()
    assert await client.problem() == (408, "request-timeout")


async def test_a_head_that_drips_is_refused(client: Client) -> None:
    client.say(b"GET / HTTP/1.1\r\nHost: ")

    async def drip() -> None:
        while True:
            client.say(b"x")
            await asyncio.sleep(Hasty.seconds / 10)

    dripping = asyncio.create_task(drip())
    assert await client.problem() == (408, "request-timeout")
    dripping.cancel()


async def test_a_body_that_stops_is_refused_and_its_operation_told(client: Client, service: Service) -> None:
    client.say(POST + b"ab")
    assert await client.problem() == (408, "request-timeout")
    await service.gone.wait()


async def test_a_body_may_take_long_if_it_moves(client: Client) -> None:
    client.say(POST)
    for _ in range(10):
        await asyncio.sleep(Hasty.seconds / 4)
        client.say(b"12345")
    assert (await client.hear())[0] == 200


async def test_the_rest_of_an_answered_body_has_so_much_time_in_all(client: Client) -> None:
    client.say(POST.replace(b"/ ", b"/early "))
    assert (await client.hear())[2] == b"/early"
    for _ in range(20):
        await asyncio.sleep(Hasty.seconds / 4)
        client.say(b"1")
    assert await client.is_hung_up()


async def test_an_answered_body_that_has_come_whole_leaves_no_connection_open_for_ever(client: Client) -> None:
    client.say(POST.replace(b"/ ", b"/early "))
    assert (await client.hear())[2] == b"/early"
    client.say(b"x" * 50)
    assert await client.is_hung_up()


@pytest.mark.parametrize("behind", [b"", b"GET / HT", POST + b"ab"], ids=["alone", "half a head", "half a body"])
async def test_who_waits_for_an_answer_is_left_in_peace(client: Client, service: Service, behind: bytes) -> None:
    client.say(WAIT + behind)
    await service.begun.wait()
    await asyncio.sleep(Hasty.seconds * 3)
    service.may_answer.set()
    assert (await client.hear())[2] == b"/wait"


async def test_who_waits_to_be_told_to_go_on_is_left_in_peace(client: Client, service: Service) -> None:
    client.say(b"POST /late HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    await service.begun.wait()
    await asyncio.sleep(Hasty.seconds * 3)
    service.may_read.set()
    assert (await client.hear())[0] == 100
    client.say(b"hello")
    assert (await client.hear())[0] == 200
