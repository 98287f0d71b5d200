"""Servers for the tests of the HTTP room."""

from collections.abc import AsyncIterator

import pytest

from tests.api.house import House, open_house


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """A server that needs no key."""
    async with open_house() as house:
        yield house


@pytest.fixture
async def guarded() -> AsyncIterator[House]:
    """A server that needs keys."""
    async with open_house(needs_keys=True) as house:
        yield house
