"""A server without a network: requests go through the whole HTTP room to a real SQLite store in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from app.api.application import build
from app.api.desk import Desk
from app.api.figures import Figures
from app.api.front import Front
from app.api.metrics import Metrics
from app.broker.broker import Broker
from app.broker.keys import Doorkeeper, create_key
from app.domain.access import Grant, Right
from app.domain.refusals import Overloaded
from app.maintenance.expiry import expire_locks
from app.maintenance.retention import retire_messages
from app.maintenance.schedule import awaken_scheduled
from app.runtime.byte_budget import ByteBudget
from tests.api.promises import hold
from tests.clock import VirtualClock
from tests.rooms import sqlite_broker

LARGEST_REQUEST = 4 << 20
LONGEST_WAIT = 50.0
METRICS_KEY = "a key for metrics"


class House:
    """A server, its clock, and a caller of it."""

    def __init__(self, broker: Broker, clock: VirtualClock, doorkeeper: Doorkeeper | None) -> None:
        self.broker = broker
        self.clock = clock
        self.doorkeeper = doorkeeper
        self.requests = ByteBudget(2 * LARGEST_REQUEST, Overloaded)
        self.desk = Desk(
            broker,
            doorkeeper,
            Metrics(),
            LARGEST_REQUEST,
            LONGEST_WAIT,
            lambda: self.front.draining,
            self.requests,
            Figures(broker),
            METRICS_KEY,
        )
        self.front = Front(build(self.desk))
        transport = httpx.ASGITransport(self.front)
        self.http = httpx.AsyncClient(
            transport=transport, base_url="http://peeklock.test", event_hooks={"response": [hold]}
        )

    async def call(self, method: str, path: str, body: Any = None, **request: Any) -> httpx.Response:
        """One request below /v1, with a body of JSON where one is given."""
        if body is not None:
            request["json"] = body
        return await self.http.request(method, f"/v1{path}", **request)

    async def ask(self, method: str, path: str, body: Any = None, **request: Any) -> Any:
        """What a request that must succeed is answered."""
        answer = await self.call(method, path, body, **request)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def send(self, queue: str = "orders", **message: Any) -> Any:
        """Send a message."""
        return await self.ask("POST", f"/queues/{queue}/messages", message)

    async def receive(self, queue: str = "orders", **wanted: Any) -> list[Any]:
        """The messages that a receive is answered with."""
        return (await self.ask("POST", f"/queues/{queue}/messages/receive", wanted))["messages"]

    async def settle(self, message: Mapping[str, Any], verb: str, queue: str = "orders", **said: Any) -> httpx.Response:
        """Complete, abandon, dead-letter, defer or renew a message by its lock."""
        return await self.call("POST", f"/queues/{queue}/locks/{message['lock_token']}/{verb}", said)

    async def counts(self, queue: str = "orders") -> dict[str, int]:
        """How many messages are in each state that has any."""
        counts = (await self.ask("GET", f"/queues/{queue}"))["counts"]
        return {state: count for state, count in counts.items() if count}

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and let the background passes see it."""
        await self.clock.advance(seconds)
        await expire_locks(self.broker)
        await awaken_scheduled(self.broker)
        await retire_messages(self.broker)

    async def key(self, *rights: Right, patterns: tuple[str, ...] = ("*",), principal: str = "somebody") -> str:
        """The secret of a new key with these rights."""
        grant = Grant(frozenset(rights), patterns)
        fresh = await create_key(self.broker.store.keys, principal, grant, self.clock.now())
        if self.doorkeeper is not None:
            self.doorkeeper.forget()
        return fresh.secret


@asynccontextmanager
async def open_house(*, needs_keys: bool = False, auto_create: bool = True) -> AsyncIterator[House]:
    """A server on an empty database, open to everybody unless it needs keys."""
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock, auto_create=auto_create) as broker:
        doorkeeper = Doorkeeper(broker.store.keys, clock, open_without_keys=False) if needs_keys else None
        house = House(broker, clock, doorkeeper)
        async with house.http:
            yield house
        if doorkeeper is not None:
            await doorkeeper.close()


def problem(answer: httpx.Response, status: int, code: str) -> Any:
    """The problem document of an answer that must be this one."""
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.json()


def pointers(answer: httpx.Response) -> list[str]:
    """Where the faults of an invalid request are."""
    return [fault["pointer"] for fault in problem(answer, 422, "invalid-request")["errors"]]
