"""The sender and the receiver of a synchronous send are on two servers, and either server may die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.faults.database_access import remaining_messages
from tests.faults.fleet import Fleet, PeeklockServer
from tests.faults.polling import TIMEOUT_SECONDS

KEY = {"Idempotency-Key": "question"}
OFTEN_ENOUGH = 50
"""Seconds that a sender waits whose answer comes earlier."""


class Pair:
    """Two servers on one database: one for the sender, one for the receiver."""

    def __init__(
        self, fleet: Fleet, senders: PeeklockServer, receivers: PeeklockServer, http: httpx.AsyncClient
    ) -> None:
        self.fleet, self.senders, self.receivers, self.http = fleet, senders, receivers, http
        self._path = f"/v1/queues/{fleet.queue}"

    async def create_queue(self, **settings: Any) -> None:
        assert (await self.http.put(self.senders.url + self._path, json=settings)).is_success

    async def ask(self, server: PeeklockServer, wait_seconds: float = OFTEN_ENOUGH) -> httpx.Response:
        """Send synchronously through this server."""
        question = {"body": "question", "delivery": "synchronous", "wait_seconds": wait_seconds}
        return await self.http.post(f"{server.url}{self._path}/messages", json=question, headers=KEY)

    async def take(self, lock_seconds: float = OFTEN_ENOUGH) -> str:
        """Receive the message through the other server. Return its lock token."""
        url = f"{self.receivers.url}{self._path}/messages/receive"
        (message,) = (await self.http.post(url, json={"wait_seconds": 30, "lock_seconds": lock_seconds})).json()[
            "messages"
        ]
        return message["lock_token"]

    async def complete(self, token: str) -> httpx.Response:
        url = f"{self.receivers.url}{self._path}/locks/{token}/complete"
        return await self.http.post(url, json={"reply": "yes"})

    def remaining(self) -> list[str]:
        """The states of what is left of the message."""
        return [message.state for message in remaining_messages(self.fleet.database, self.fleet.queue)]


@asynccontextmanager
async def pair_of(fleet: Fleet) -> AsyncIterator[Pair]:
    senders, receivers = await asyncio.gather(fleet.serve(), fleet.serve())
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as http:
        pair = Pair(fleet, senders, receivers, http)
        await pair.create_queue()
        yield pair


@pytest.mark.behaviour("S1.1")
@pytest.mark.faults
async def test_a_sender_hears_of_a_completion_on_another_server(fleet: Fleet) -> None:
    async with pair_of(fleet) as pair:
        asking = asyncio.create_task(pair.ask(pair.senders))
        assert (await pair.complete(await pair.take())).is_success
        assert (await asking).json()["reply"] == "yes"
    assert pair.remaining() == ["completed"]


@pytest.mark.behaviour("S1.2")
@pytest.mark.faults
async def test_a_sender_hears_that_the_server_of_its_receiver_has_died(fleet: Fleet) -> None:
    async with pair_of(fleet) as pair:
        asking = asyncio.create_task(pair.ask(pair.senders))
        token = await pair.take(lock_seconds=5)
        pair.receivers.kill()
        refused = await asking
        assert (refused.status_code, refused.json()["code"]) == (504, "no-answer")
        await asyncio.to_thread(pair.receivers.start)
        assert (await pair.complete(token)).status_code == 410
    assert pair.remaining() == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_a_repeat_on_another_server_hears_the_completion(fleet: Fleet) -> None:
    async with pair_of(fleet) as pair:
        asking = asyncio.create_task(pair.ask(pair.senders))
        token = await pair.take()
        pair.senders.kill()
        with pytest.raises(httpx.TransportError):
            await asking
        assert (await pair.complete(token)).is_success
        assert (await pair.ask(pair.receivers)).json()["reply"] == "yes"
    assert pair.remaining() == ["completed"]
