"""A process serves a number of connections; a request on one above it hears a problem, and probes come through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from app.server.limited import SPARE, SPARE_SECONDS, Limited
from tests.clock import VirtualClock
from tests.server.connections import CHUNKED, GET, Arrived, Client, Service, listening

LIMIT = 3
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


class Crowd:
    """Clients of one service."""

    def __init__(self, port: int, arrived: Arrived, closing: AsyncExitStack) -> None:
        self._port = port
        self._arrived = arrived
        self._closing = closing

    async def client(self) -> Client:
        """One more, which the service has taken in."""
        self._arrived.news.clear()
        client = Client(*await asyncio.open_connection("127.0.0.1", self._port), self._arrived)
        self._closing.push_async_callback(client.close)
        await self._arrived.news.wait()
        return client

    async def clients(self, count: int) -> list[Client]:
        return [await self.client() for _ in range(count)]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def crowd(clock: VirtualClock) -> AsyncIterator[Crowd]:
    async with listening(Service(), Limited, clock, LIMIT) as (port, arrived), AsyncExitStack() as closing:
        yield Crowd(port, arrived, closing)


async def test_connections_up_to_the_limit_are_served_also_while_there_are_more(crowd: Crowd) -> None:
    clients = await crowd.clients(LIMIT)
    await crowd.clients(2)
    for client in clients * 2:
        client.say(GET)
        assert (await client.hear())[0] == 200


@pytest.mark.parametrize("request_", [GET, CHUNKED], ids=["no body", "half a body"])
async def test_a_request_above_the_limit_is_refused_and_says_when_to_come_back(crowd: Crowd, request_: bytes) -> None:
    await crowd.clients(LIMIT)
    client = await crowd.client()
    client.say(request_)
    status, headers, body = await client.hear()
    assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
    assert b'"overloaded"' in body
    assert await client.is_hung_up()


async def test_a_probe_above_the_limit_is_answered_once(crowd: Crowd) -> None:
    await crowd.clients(LIMIT)
    client = await crowd.client()
    client.say(LIVEZ + GET)
    status, headers, body = await client.hear()
    assert (status, headers["connection"], body) == (200, "close", b"/livez")
    assert await client.is_hung_up()


async def test_the_end_of_a_connection_makes_room(crowd: Crowd) -> None:
    first, *_ = await crowd.clients(LIMIT)
    first.say(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert (await first.hear())[0] == 200
    assert await first.is_hung_up()
    client = await crowd.client()
    client.say(GET)
    assert (await client.hear())[0] == 200


async def test_far_above_the_limit_a_probe_takes_the_place_of_who_has_been_silent_for_longest(
    crowd: Crowd, clock: VirtualClock
) -> None:
    await crowd.clients(LIMIT)
    oldest = await crowd.client()
    await clock.advance(SPARE_SECONDS / 2)
    others = await crowd.clients(SPARE - 1)
    client = await crowd.client()
    assert await oldest.problem() == (503, "overloaded")
    for asking in (client, others[0]):
        asking.say(LIVEZ)
        assert (await asking.hear())[2] == b"/livez"


async def test_far_above_the_limit_nobody_who_has_begun_to_ask_is_turned_away_for_another(crowd: Crowd) -> None:
    await crowd.clients(LIMIT)
    for asking in await crowd.clients(SPARE):
        await asking.tell(LIVEZ[:-2])
    client = await crowd.client()
    assert await client.problem() == (503, "overloaded")


async def test_a_connection_above_the_limit_that_asks_for_nothing_is_soon_closed(
    crowd: Crowd, clock: VirtualClock
) -> None:
    quiet = (await crowd.clients(LIMIT))[0]
    client = await crowd.client()
    await clock.advance(SPARE_SECONDS)
    assert await client.is_hung_up()
    quiet.say(GET)
    assert (await quiet.hear())[0] == 200
