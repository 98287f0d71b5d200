"""The console without a network: requests pass through the whole application to a real SQLite store in memory."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from app import __version__
from app.broker.access.sessions import Sessions
from app.broker.ports.server_directory import Server, ServerDirectory
from app.console.access import COOKIE, csrf_token
from app.console.activity import SAMPLE_SECONDS, Activity
from app.console.application import build_console
from app.console.consumers import PausedConsumers
from app.console.context import ConsoleContext
from app.console.known_visitors import KnownVisitors
from app.console.summaries import Summaries
from app.console.total_plots import PlotsOfAll
from app.http.local_access import LocalAccessPolicy
from app.http.queue_statistics import QueueStatistics
from app.http.request_id import RequestIdMiddleware
from app.locks.memory_server_directory import MemoryServerDirectory
from tests.api.api_server import MAX_REQUEST_BYTES, MAX_WAIT, ApiServer, open_api_server
from tests.brokers import ChangedStore

ORIGIN = "http://peeklock.test"


class ConsoleServer:
    """The console of a server, the server's API, and a browser without scripts."""

    def __init__(self, api: ApiServer) -> None:
        self.counted = api.broker.counters
        self.server = Server("this", "web-1", 17, __version__, api.clock.now())
        self.directory: ServerDirectory = MemoryServerDirectory()
        self.activity = Activity(self.counted, api.clock, self.server)
        self.api = api = ApiServer(replace(api.broker, counters=self.activity), api.clock, api.authenticator)
        self.sessions = api.authenticator and Sessions(api.broker.store.sessions, api.authenticator, api.clock)
        self.paused = PausedConsumers(api.context.broker.consumers)
        self.context = ConsoleContext(
            api.context.broker,
            api.authenticator,
            self.sessions,
            LocalAccessPolicy(requires_local_host=False, requires_json=False, requires_admin_header=False),
            self.activity,
            self.paused,
            Summaries(self.activity, self.paused),
            PlotsOfAll(self.activity),
            QueueStatistics(api.broker.store.queues, api.broker.lock_store, self.activity, api.clock),
            KnownVisitors(api.clock),
            MAX_WAIT,
            MAX_REQUEST_BYTES,
            api.request_budget,
            sqs_secret=api.context.sqs_secret,
        )
        self.application = build_console(self.context)
        self.http = self.browser()

    def take_queues_away(self, **methods: object) -> None:
        """Let the statistics of queues use a store with other methods."""
        queues: Any = ChangedStore(self.api.broker.store.queues, **methods)
        statistics = QueueStatistics(queues, self.api.broker.lock_store, self.activity, self.api.clock)
        self.context = replace(self.context, statistics=statistics)
        self.application.state.context = self.context

    def take_sessions_away(self, **methods: object) -> None:
        """Let the sessions use a store with other methods."""
        assert self.api.authenticator is not None
        store: Any = ChangedStore(self.api.broker.store.sessions, **methods)
        self.context = replace(self.context, sessions=Sessions(store, self.api.authenticator, self.api.clock))
        self.application.state.context = self.context

    def take_sends_away(self, **methods: object) -> None:
        """Let sends use a store with other methods."""
        broker = self.context.broker
        store: Any = ChangedStore(broker.sending.store, **methods)
        self.context = replace(self.context, broker=replace(broker, sending=replace(broker.sending, store=store)))
        self.application.state.context = self.context

    def browser(self) -> httpx.AsyncClient:
        """Return a browser without cookies."""
        transport = httpx.ASGITransport(RequestIdMiddleware(self.application), raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers={"origin": ORIGIN})

    async def get(self, path: str = "", **request: object) -> httpx.Response:
        """Load a page below /console."""
        return await self.http.get(f"/console{path}", **request)  # type: ignore[arg-type]

    async def page(self, path: str = "") -> str:
        """Load a page that must be shown, with figures of now."""
        await self.sample()
        response = await self.get(path)
        assert response.status_code == 200, response.text
        return response.text

    async def following(self, response: httpx.Response) -> str:
        """Load the page to which a form leads."""
        assert response.status_code == 303, response.text
        return (await self.http.get(response.headers["location"])).text

    async def sample(self) -> None:
        """Let the time to the next sample pass, and take it."""
        await self.api.clock.advance(SAMPLE_SECONDS)
        await self.take_sample()

    async def take_sample(self) -> None:
        """Take the next sample."""
        await self.paused.read()
        await self.activity.sample(self.context.statistics, self.directory)

    async def post(self, path: str, from_page: str = "", **fields: object) -> httpx.Response:
        """Send a form with the token of this visitor, after loading a page."""
        await self.get(from_page)
        token = csrf_token(self.http.cookies[COOKIE])
        return await self.http.post(f"/console{path}", data={"csrf_token": token, **fields})

    async def sign_in(self, api_key: str) -> httpx.Response:
        """Sign in with an API key."""
        return await self.post("/sign-in", "/sign-in", api_key=api_key)


def token_of(page: str) -> str:
    """Return the token that a page sends with its forms."""
    found = re.search(r'name="csrf_token" value="(\w+)"', page)
    assert found, page
    return found[1]


@asynccontextmanager
async def open_console_server(*, needs_keys: bool = False) -> AsyncIterator[ConsoleServer]:
    """A console on an empty database. Without `needs_keys` no visitor needs to sign in."""
    async with open_api_server(needs_keys=needs_keys) as api:
        console = ConsoleServer(api)
        async with console.http:
            yield console
        if console.sessions:
            await console.sessions.close()
