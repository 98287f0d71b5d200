"""A server without a network. Requests pass through the whole application to a real SQLite store in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from app.api.application import build_application
from app.assembly import assemble
from app.broker.access.keys import Authenticator, create_key
from app.domain.access import Grant, Right
from app.domain.refusals import Overloaded
from app.http.access_log import with_access_log
from app.http.context import AppContext
from app.http.metrics import Metrics
from app.http.metrics_page import MetricsPage
from app.http.queue_statistics import QueueStatistics
from app.http.request_id import RequestIdMiddleware
from app.maintenance.expiry import expire_locks
from app.maintenance.retention import expire_overdue
from app.maintenance.schedule import promote_scheduled
from app.runtime.byte_budget import ByteBudget
from tests.api.openapi_conformance import check_conformance
from tests.brokers import ChangedStore, OpenBroker, sqlite_broker
from tests.virtual_clock import VirtualClock

MAX_REQUEST_BYTES = 4 << 20
MAX_WAIT = 50.0
METRICS_KEY = "a key for metrics"
SQS_SECRET = "a secret from which those of SQS are derived"


class ApiServer:
    """A server, its clock and a client."""

    def __init__(self, broker: OpenBroker, clock: VirtualClock, authenticator: Authenticator | None) -> None:
        self.broker = broker
        self.clock = clock
        self.authenticator = authenticator
        self.request_budget = ByteBudget(2 * MAX_REQUEST_BYTES, Overloaded)
        limits = broker.response_limits
        metrics = Metrics()
        statistics = QueueStatistics(broker.store.queues, broker.lock_store, broker.counters, broker.clock)
        self.context = AppContext(
            assemble(broker),
            authenticator,
            metrics,
            MAX_REQUEST_BYTES,
            MAX_WAIT,
            lambda: self.middleware.is_draining,
            self.request_budget,
            limits.budget,
            MetricsPage(metrics, statistics, broker.clock),
            METRICS_KEY,
            sqs_secret=SQS_SECRET,
        )
        self.middleware = RequestIdMiddleware(with_access_log(build_application(self.context)))
        transport = httpx.ASGITransport(self.middleware)
        self.http = httpx.AsyncClient(
            transport=transport, base_url="http://peeklock.test", event_hooks={"response": [check_conformance]}
        )

    def with_store(self, **methods: Any) -> "ApiServer":
        """Return a server like this one whose store has other methods."""
        store: Any = ChangedStore(self.broker.store, **methods)
        return ApiServer(replace(self.broker, store=store), self.clock, self.authenticator)

    async def request(self, method: str, path: str, body: Any = None, **request: Any) -> httpx.Response:
        """Send one request below /v1, with `body` as JSON if it is given."""
        if body is not None:
            request["json"] = body
        return await self.http.request(method, f"/v1{path}", **request)

    async def request_json(self, method: str, path: str, body: Any = None, **request: Any) -> Any:
        """Return the body of a request that must succeed."""
        response = await self.request(method, path, body, **request)
        assert response.is_success, response.text
        return response.json() if response.content else None

    async def send(self, queue: str = "orders", **message: Any) -> Any:
        """Send a message."""
        return await self.request_json("POST", f"/queues/{queue}/messages", message)

    async def receive(self, queue: str = "orders", **wanted: Any) -> list[Any]:
        """Receive messages."""
        return (await self.request_json("POST", f"/queues/{queue}/messages/receive", wanted))["messages"]

    async def settle(
        self, message: Mapping[str, Any], verb: str, queue: str = "orders", **fields: Any
    ) -> httpx.Response:
        """Complete, abandon, dead-letter, defer or renew a message by its lock."""
        return await self.request("POST", f"/queues/{queue}/locks/{message['lock_token']}/{verb}", fields)

    async def counts(self, queue: str = "orders") -> dict[str, int]:
        """Return the number of messages in each state that has any."""
        counts = (await self.request_json("GET", f"/queues/{queue}"))["counts"]
        return {state: count for state, count in counts.items() if count}

    async def advance_time(self, seconds: float) -> None:
        """Advance the clock and run the background passes."""
        await self.clock.advance(seconds)
        await expire_locks(self.broker.settling)
        await promote_scheduled(self.broker.administration)
        await expire_overdue(self.broker.administration)

    async def new_key(self, *rights: Right, patterns: tuple[str, ...] = ("*",), principal: str = "client") -> str:
        """Create a key with these rights and return its secret."""
        grant = Grant(frozenset(rights), patterns)
        created = await create_key(self.broker.store.keys, principal, grant, self.clock.now())
        if self.authenticator is not None:
            self.authenticator.clear_cache()
        return created.secret


@asynccontextmanager
async def open_api_server(*, needs_keys: bool = False, auto_create: bool = True) -> AsyncIterator[ApiServer]:
    """A server on an empty database. Without `needs_keys` every client has every right."""
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock, auto_create=auto_create) as broker:
        authenticator = Authenticator(broker.store.keys, clock, anonymous_without_keys=False) if needs_keys else None
        api = ApiServer(broker, clock, authenticator)
        async with api.http:
            yield api
        if authenticator is not None:
            await authenticator.close()


def problem(response: httpx.Response, status: int, code: str) -> Any:
    """Check the status and code of a problem, and return the document."""
    assert (response.status_code, response.json().get("code")) == (status, code), response.text
    assert response.headers["content-type"] == "application/problem+json"
    return response.json()


def pointers(response: httpx.Response) -> list[str]:
    """Return the pointers of an `invalid-request` problem."""
    faults = problem(response, 422, "invalid-request")["errors"]
    return [fault["pointer"].removeprefix("#/body") for fault in faults]
