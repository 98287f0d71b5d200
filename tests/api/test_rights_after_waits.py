"""Rights are checked again when a wait ends: a key that has ended meanwhile gets no message, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from app.broker.access.keys import CACHE_SECONDS, Authenticator
from app.domain.access import Right
from tests.api.api_server import ApiServer, problem
from tests.api.synchronous_senders import sending
from tests.virtual_clock import run_ready_tasks

RECEIVE = "/queues/orders/messages/receive"
RECEIVES: dict[str, tuple[str, dict[str, Any] | None, dict[str, str]]] = {
    "plain": (RECEIVE, {"wait_seconds": 30}, {}),
    "filtered": (RECEIVE, {"wait_seconds": 30, "filter": "message.priority == 4"}, {}),
    "receive and delete": (RECEIVE, {"wait_seconds": 30, "mode": "receive_and_delete"}, {}),
    "idempotent": (RECEIVE, {"wait_seconds": 30}, {"Idempotency-Key": "a"}),
    "raw": (f"{RECEIVE}/raw?wait_seconds=30", None, {}),
}
each_receive = pytest.mark.parametrize("name", RECEIVES)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@dataclass
class Receiver:
    """A client with a key, and its server. Changes of keys in another process are found when the cache has expired."""

    api: ApiServer
    admin: str
    secret: str
    key_id: str

    async def wait(self, name: str) -> asyncio.Task[httpx.Response]:
        """Begin to wait for a message."""
        path, body, headers = RECEIVES[name]
        waiting = asyncio.create_task(self.api.request("POST", path, body, headers={**headers, **bearer(self.secret)}))
        await run_ready_tasks()
        assert not waiting.done()
        return waiting

    async def send(self) -> None:
        await self.api.request_json("POST", "/queues/orders/messages", {"body": 1}, headers=bearer(self.admin))

    async def states(self) -> dict[str, int]:
        queue = await self.api.request_json("GET", "/queues/orders", headers=bearer(self.admin))
        return {state: count for state, count in queue["counts"].items() if count}


@pytest.fixture
async def receiver(api_with_keys: ApiServer) -> Receiver:
    admin = await api_with_keys.new_key(*Right, principal="admin")
    await api_with_keys.request_json("PUT", "/queues/orders", {}, headers=bearer(admin))
    secret = await api_with_keys.new_key(Right.LISTEN)
    (key,) = [key for key in await api_with_keys.broker.store.keys.list_all() if key.principal == "client"]
    return Receiver(api_with_keys, admin, secret, key.id)


@each_receive
async def test_a_revoked_key_gets_nothing_from_a_wait(receiver: Receiver, name: str) -> None:
    waiting = await receiver.wait(name)
    await receiver.api.broker.store.keys.revoke(receiver.key_id)
    await receiver.api.clock.advance(CACHE_SECONDS)
    await receiver.send()
    problem(await waiting, 401, "unauthenticated")
    assert await receiver.states() == {"available": 1}


@each_receive
async def test_a_live_key_gets_its_message(receiver: Receiver, name: str) -> None:
    waiting = await receiver.wait(name)
    await receiver.api.clock.advance(CACHE_SECONDS)
    await receiver.send()
    assert (await waiting).status_code == 200
    assert "available" not in await receiver.states()


async def test_a_key_that_this_server_revokes_gets_nothing_at_once(receiver: Receiver) -> None:
    waiting = await receiver.wait("plain")
    await receiver.api.request("DELETE", f"/keys/{receiver.key_id}", headers=bearer(receiver.admin))
    await receiver.send()
    problem(await waiting, 401, "unauthenticated")


async def test_a_revoked_key_gets_no_reply_to_a_synchronous_send(receiver: Receiver) -> None:
    sender = await receiver.api.new_key(Right.SEND, principal="sender")
    async with sending(receiver.api, headers=bearer(sender)) as waiting:
        taken = await receiver.api.request_json("POST", RECEIVE, {}, headers=bearer(receiver.admin))
        keys = await receiver.api.broker.store.keys.list_all()
        await receiver.api.broker.store.keys.revoke(next(key.id for key in keys if key.principal == "sender"))
        await receiver.api.clock.advance(CACHE_SECONDS)
        path = f"/queues/orders/locks/{taken['messages'][0]['lock_token']}/complete"
        await receiver.api.request_json("POST", path, {"reply": "secret"}, headers=bearer(receiver.admin))
        problem(await waiting.answer(), 401, "unauthenticated")


SLOW_BODIES = {
    "JSON": ("/queues/orders/messages", b'{"body": 1}', "application/json"),
    "raw": ("/queues/orders/messages/raw", b"content", "text/plain"),
}


@pytest.mark.parametrize("name", SLOW_BODIES)
async def test_a_revoked_key_does_nothing_with_a_body_that_arrives_later(receiver: Receiver, name: str) -> None:
    path, content, kind = SLOW_BODIES[name]
    sender = await receiver.api.new_key(Right.SEND, principal="sender")
    may_arrive = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield content[:1]
        await may_arrive.wait()
        yield content[1:]

    headers = {**bearer(sender), "Content-Type": kind}
    sending = asyncio.create_task(receiver.api.request("POST", path, content=body(), headers=headers))
    await run_ready_tasks()
    keys = await receiver.api.broker.store.keys.list_all()
    await receiver.api.broker.store.keys.revoke(next(key.id for key in keys if key.principal == "sender"))
    await receiver.api.clock.advance(CACHE_SECONDS)
    may_arrive.set()
    problem(await sending, 401, "unauthenticated")
    assert await receiver.states() == {}


async def test_the_message_goes_to_the_next_receiver(receiver: Receiver) -> None:
    """The wake-up of a receiver that is refused passes on."""
    refused = await receiver.wait("plain")
    next_one = Receiver(receiver.api, receiver.admin, receiver.admin, "")
    served = await next_one.wait("plain")
    await receiver.api.broker.store.keys.revoke(receiver.key_id)
    await receiver.api.clock.advance(CACHE_SECONDS)
    await receiver.send()
    problem(await refused, 401, "unauthenticated")
    assert [message["body"] for message in (await served).json()["messages"]] == [1]


async def test_the_first_key_ends_the_waits_of_clients_without_one(api: ApiServer) -> None:
    """A server that needs no key until the first one is made."""
    open_server = ApiServer(
        api.broker, api.clock, Authenticator(api.broker.store.keys, api.clock, anonymous_without_keys=True)
    )
    await open_server.request_json("PUT", "/queues/orders", {})
    waiting = asyncio.create_task(open_server.request("POST", RECEIVE, {"wait_seconds": 30}))
    await run_ready_tasks()
    secret = await open_server.new_key(*Right)
    await open_server.request_json("POST", "/queues/orders/messages", {"body": 1}, headers=bearer(secret))
    problem(await waiting, 401, "unauthenticated")
