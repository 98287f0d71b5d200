"""Consoles for tests without a browser, and servers for tests with one."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.console_server import ConsoleServer, open_console_server
from tests.console.shared_directory import Directory
from tests.databases import RunResources
from tests.peeklock_process import PeeklockProcess


@pytest.fixture
async def console() -> AsyncIterator[ConsoleServer]:
    """The console of a server that needs no API key."""
    async with open_console_server() as console:
        yield console


@pytest.fixture
async def console_with_keys() -> AsyncIterator[ConsoleServer]:
    """The console of a server that needs API keys."""
    async with open_console_server(needs_keys=True) as console:
        yield console


@pytest.fixture
def directory(console: ConsoleServer) -> Directory:
    """The directory of the console's server, shared with others."""
    directory = Directory()
    console.directory = directory
    return directory


@pytest.fixture
def server(request: pytest.FixtureRequest, run_resources: RunResources, tmp_path: Path) -> Iterator[PeeklockProcess]:
    """A server that needs no key, over SQLite, or over another database in tests that ask for it."""
    settings: dict[str, object] = {}
    if url_of := {"postgresql": "postgres_url", "mariadb": "mariadb_url"}.get(getattr(request, "param", "sqlite")):
        settings = {"database_url": request.getfixturevalue(url_of), "auto_create_queues": 1}
    process = PeeklockProcess(run_resources.with_tables(tmp_path), **settings)
    yield process
    process.end()


@pytest.fixture
def call(server: PeeklockProcess) -> Iterator[Callable[..., Any]]:
    """Call the API of the server: `call("POST", "/queues/orders/messages", body=1)`."""
    with httpx.Client(base_url=f"{server.url}/v1", timeout=60) as client:

        def request(method: str, path: str, **body: Any) -> Any:
            response = client.request(method, path, json=body)
            assert response.is_success, response.text
            return response.json() if response.content else None

        yield request
