"""Servers for the tests of the HTTP interface."""

from collections.abc import AsyncIterator

import pytest

from tests.api.api_server import ApiServer, open_api_server


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """A server that needs no API key."""
    async with open_api_server() as api:
        yield api


@pytest.fixture
async def api_with_keys() -> AsyncIterator[ApiServer]:
    """A server that needs API keys."""
    async with open_api_server(needs_keys=True) as api:
        yield api
