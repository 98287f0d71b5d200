"""Fleets of servers for the fault tests; everything ends with the test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.databases import RunResources
from tests.faults.crash_checks import CrashSetup, open_setup
from tests.faults.database_access import forget_locks
from tests.faults.fleet import LONG_REDIS_TIMEOUT, Fleet
from tests.servers import ServerProcess

StartFleet = Callable[..., Fleet]


@pytest.fixture
async def start_fleet(private_server: Callable[..., ServerProcess], tmp_path: Path) -> AsyncIterator[StartFleet]:
    """Make fleets: `start_fleet(database, PEEKLOCK_...)`."""
    fleets: list[Fleet] = []

    def start(database: str, **environment: str) -> Fleet:
        if redis_url := environment.get("PEEKLOCK_REDIS_URL"):
            forget_locks(redis_url)  # of an earlier test, and which database its prefix belonged to
        fleets.append(Fleet(private_server, database, tmp_path, environment))
        return fleets[-1]

    yield start
    for fleet in fleets:
        await fleet.end()


@pytest.fixture
def fleet(start_fleet: StartFleet, postgres_url: str, redis_url: str) -> Fleet:
    """A fleet on PostgreSQL and Redis, which stay well."""
    return start_fleet(postgres_url, PEEKLOCK_REDIS_URL=redis_url, **LONG_REDIS_TIMEOUT)


@pytest.fixture
def sqlite_fleet(start_fleet: StartFleet, run_resources: RunResources, tmp_path: Path) -> Fleet:
    """A fleet of one on a SQLite file."""
    return start_fleet(f"sqlite:///{shutil.copy(run_resources.sqlite_template(), tmp_path / 'peeklock.sqlite3')}")


@pytest.fixture(scope="module")
def sqlite_setup(run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashSetup]:
    """Servers to be killed on a SQLite file."""
    directory = tmp_path_factory.mktemp("crash")
    database = f"sqlite:///{shutil.copy(run_resources.sqlite_template(), directory / 'peeklock.sqlite3')}"
    yield from open_setup(directory, database)


@pytest.fixture(scope="module")
def postgres_setup(postgres_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashSetup]:
    """Servers to be killed on PostgreSQL and Redis."""
    yield from open_setup(
        tmp_path_factory.mktemp("crash"), postgres_url, PEEKLOCK_REDIS_URL=redis_url, **LONG_REDIS_TIMEOUT
    )


@pytest.fixture(scope="module")
def mariadb_setup(mariadb_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashSetup]:
    """Servers to be killed on MariaDB and Redis."""
    yield from open_setup(
        tmp_path_factory.mktemp("crash"),
        mariadb_url,
        PEEKLOCK_REDIS_URL=redis_url,
        PEEKLOCK_REDIS_PREFIX="mariadb:",
        **LONG_REDIS_TIMEOUT,
    )
