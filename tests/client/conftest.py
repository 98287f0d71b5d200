"""Real servers on each store, one for each test module, and clients of them."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Iterator
from uuid import uuid4

import pytest
from peeklock_client import Client, Queue
from peeklock_client.generated import requests

from tests.bounds import bounded
from tests.databases import RunResources
from tests.peeklock_process import PeeklockProcess

SERVER_VARIABLE = "PEEKLOCK_TEST_SERVER_URL"
"""Names a server with an embedded database that is to be used, instead of a new one for each module."""

POLL_SECONDS, MAX_POLLS = 0.05, 1200

NewQueue = Callable[[], Queue]

LONG_ON_EACH_STORE = pytest.mark.parametrize(
    "any_server_url",
    ["postgresql", *(pytest.param(store, marks=pytest.mark.nightly) for store in ("sqlite", "mariadb"))],
    indirect=True,
    scope="module",
)
"""For tests that last long, because they wait for the end of locks or have thousands of messages."""


@pytest.fixture(scope="module")
def server_url(run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with an embedded SQLite database, which creates queues when they are sent to."""
    yield from _serve(run_resources, tmp_path_factory)


@pytest.fixture(scope="module", params=["sqlite", "postgresql", pytest.param("mariadb", marks=pytest.mark.nightly)])
def any_server_url(
    request: pytest.FixtureRequest, run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server on each store in turn, with Redis where there is a database server."""
    if request.param == "sqlite":
        yield from _serve(run_resources, tmp_path_factory)
        return
    database = request.getfixturevalue({"postgresql": "postgres_url", "mariadb": "mariadb_url"}[request.param])
    require_server = request.getfixturevalue("require_server")
    # A Redis database belongs to one message store, so each server has its own.
    with run_resources.empty_database(require_server("redis")) as redis:
        settings = {"database_url": database, "redis_url": redis, "redis_timeout_seconds": 10}
        yield from _serve(run_resources, tmp_path_factory, **settings)


def _serve(resources: RunResources, directories: pytest.TempPathFactory, **settings: object) -> Iterator[str]:
    if (shared := os.environ.get(SERVER_VARIABLE)) and not settings:
        yield shared
        return
    directory = resources.with_tables(directories.mktemp("server"))
    server = PeeklockProcess(directory, auto_create_queues=1, **settings)
    yield server.url
    server.end()


@pytest.fixture
async def client(server_url: str) -> AsyncIterator[Client]:
    """A client of the SQLite server."""
    async with Client(server_url) as client:
        yield client


@pytest.fixture
async def queue(client: Client) -> Queue:
    """A new queue on the SQLite server."""
    return await new_queue(client)


@pytest.fixture
async def any_client(any_server_url: str) -> AsyncIterator[Client]:
    """A client of a server on each store in turn."""
    async with Client(any_server_url) as client:
        yield client


@pytest.fixture
async def any_queue(any_client: Client) -> Queue:
    """A new queue on each store in turn."""
    return await new_queue(any_client)


async def new_queue(client: Client, settings: requests.QueueSettingsBody | None = None) -> Queue:
    """Create a queue with a name of its own."""
    queue = client.queue(f"queue-{uuid4().hex[:12]}")
    assert await queue.create(settings)
    return queue


async def new_patient_queue(client: Client) -> Queue:
    """Create a queue that dead-letters no message, however often a lock ends on a machine that is busy."""
    return await new_queue(client, requests.QueueSettingsBody(max_delivery_count=1000))


async def until_empty(queue: Queue) -> None:
    """Return when no message is available or locked. Fail if the queue does not become smaller for many polls."""
    least = math.inf
    while least:
        for _ in bounded(f"the queue still has {least} messages", MAX_POLLS):
            counts = (await queue.status()).counts
            if counts.available + counts.locked < least:
                least = counts.available + counts.locked
                break
            await asyncio.sleep(POLL_SECONDS)


@pytest.fixture(autouse=True)
def quiet_requests() -> None:
    """Keep the log of each request out of the reports of failed tests."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
