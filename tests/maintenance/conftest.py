"""Brokers for tests of the background loops."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.brokers import sqlite_broker
from tests.databases import RunResources
from tests.maintenance.harness import BrokerHarness
from tests.virtual_clock import VirtualClock


@pytest.fixture
async def harness(run_resources: RunResources, tmp_path: Path) -> AsyncIterator[BrokerHarness]:
    """A broker over SQLite, with its own file."""
    clock = VirtualClock()
    file = shutil.copy(run_resources.sqlite_template(), tmp_path / "peeklock.db")
    async with sqlite_broker(f"sqlite:///{file}", clock) as broker:
        yield BrokerHarness(broker, clock)
