"""Fleets of servers for the fault tests; everything ends with the test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.databases import Run
from tests.faults.fleet import Fleet
from tests.servers import Server

StartFleet = Callable[..., Fleet]


@pytest.fixture
async def start_fleet(private_server: Callable[..., Server], tmp_path: Path) -> AsyncIterator[StartFleet]:
    """Make fleets: `start_fleet(database, PEEKLOCK_...)`."""
    fleets: list[Fleet] = []

    def start(database: str, **environment: str) -> Fleet:
        fleets.append(Fleet(private_server, database, tmp_path, environment))
        return fleets[-1]

    yield start
    for fleet in fleets:
        await fleet.end()


@pytest.fixture
def fleet(start_fleet: StartFleet, postgres_url: str, redis_url: str) -> Fleet:
    """A fleet on PostgreSQL and Redis, which stay well."""
    return start_fleet(postgres_url, PEEKLOCK_REDIS_URL=redis_url)


@pytest.fixture
def sqlite_fleet(start_fleet: StartFleet, run: Run, tmp_path: Path) -> Fleet:
    """A fleet of one on a SQLite file."""
    return start_fleet(f"sqlite:///{shutil.copy(run.sqlite_template(), tmp_path / 'peeklock.sqlite3')}")
