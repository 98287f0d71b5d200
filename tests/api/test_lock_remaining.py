"""`lock_remaining_ms` is the time left when the answer is sent, after all waits since the lock began."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.api.api_server import ApiServer
from tests.virtual_clock import VirtualClock


class SlowStore:
    """A store that answers a claim or a renewal three seconds after it took effect."""

    def __init__(self, store: Any, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, claim: Any) -> Any:
        return await self._delayed(await self._store.claim(claim))

    async def claim_by_number(self, claim: Any, numbers: Any) -> Any:
        return await self._delayed(await self._store.claim_by_number(claim, numbers))

    async def claim_or_replay(self, claim: Any, attempt: Any) -> Any:
        return await self._delayed(await self._store.claim_or_replay(claim, attempt))

    async def extend(self, extensions: Any) -> Any:
        return await self._delayed(await self._store.extend(extensions))

    async def _delayed(self, answer: Any) -> Any:
        await self._clock.advance(3)
        return answer


def with_slow_store(api: ApiServer) -> ApiServer:
    """The same server with a slow store."""
    store: Any = SlowStore(api.broker.store, api.clock)
    return ApiServer(replace(api.broker, store=store), api.clock, None)


async def test_a_receive_returns_the_remaining_time_of_its_lock(api: ApiServer) -> None:
    await api.send()
    async with with_slow_store(api).http as http:
        answer = await http.post("/v1/queues/orders/messages/receive")
    (message,) = answer.json()["messages"]
    assert message["lock_remaining_ms"] == 27_000


async def test_each_message_has_the_remaining_time_of_its_own_lock(api: ApiServer) -> None:
    """A receive with a filter claims messages after each scan, so those of the first scan have waited for the second."""
    for kind in ("a", "b"):
        await api.send(properties={"kind": kind})
    wanted = {"filter": "message.properties.kind in ['a', 'b']", "max_messages": 2}
    async with with_slow_store(api).http as http:
        answer = await http.post("/v1/queues/orders/messages/receive", json=wanted)
    assert [message["lock_remaining_ms"] for message in answer.json()["messages"]] == [27_000, 27_000]


async def test_a_lock_that_has_expired_meanwhile_has_0_ms_left(api: ApiServer) -> None:
    await api.send()
    async with with_slow_store(api).http as http:
        answer = await http.post("/v1/queues/orders/messages/receive", json={"lock_seconds": 2})
    (message,) = answer.json()["messages"]
    assert message["lock_remaining_ms"] == 0


async def test_a_repeated_receive_returns_the_remaining_time_as_of_then(api: ApiServer) -> None:
    await api.send()
    key = {"Idempotency-Key": "one"}
    async with with_slow_store(api).http as http:
        answers = [await http.post("/v1/queues/orders/messages/receive", headers=key) for _ in range(2)]
    assert [answer.json()["messages"][0]["lock_remaining_ms"] for answer in answers] == [27_000, 24_000]


async def test_a_renewal_returns_the_remaining_time_of_its_lock(api: ApiServer) -> None:
    await api.send()
    (message,) = await api.receive()
    async with with_slow_store(api).http as http:
        renewed = await http.post(f"/v1/queues/orders/locks/{message['lock_token']}/renew")
        settlements = [{"action": "renew", "lock_token": message["lock_token"], "lock_seconds": 60}]
        batch = await http.post("/v1/queues/orders/settle", json={"settlements": settlements})
    assert renewed.json()["lock_remaining_ms"] == 27_000
    assert batch.json()["results"][0]["lock_remaining_ms"] == 57_000


async def test_a_lock_renewed_by_a_waiting_receive_loses_time_during_the_wait(api: ApiServer) -> None:
    """The renewal takes effect at once, but its result is sent with the messages that the receive waits for."""
    await api.send()
    (message,) = await api.receive()
    settlements = [{"action": "renew", "lock_token": message["lock_token"]}]
    wanted = {"settlements": settlements, "wait_seconds": 20}
    waiting = asyncio.create_task(api.request("POST", "/queues/orders/messages/receive", wanted))
    await api.clock.advance(7)
    await api.send()
    answer = (await waiting).json()
    assert answer["settled"][0]["lock_remaining_ms"] == 23_000
    assert answer["messages"][0]["lock_remaining_ms"] == 30_000
