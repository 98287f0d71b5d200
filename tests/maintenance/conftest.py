"""Houses to maintain."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import VirtualClock
from tests.databases import Run
from tests.maintenance.house import House
from tests.rooms import sqlite_broker


@pytest.fixture
async def house(run: Run, tmp_path: Path) -> AsyncIterator[House]:
    """One over SQLite, on its own."""
    clock = VirtualClock()
    file = shutil.copy(run.sqlite_template(), tmp_path / "peeklock.db")
    async with sqlite_broker(f"sqlite:///{file}", clock) as broker:
        yield House(broker, clock)
