"""Consoles for tests without a browser."""

from collections.abc import AsyncIterator

import pytest

from tests.console.console_server import ConsoleServer, open_console_server


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
