"""Fleets of servers for the fault tests; everything ends with the test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.databases import Run
from tests.faults.crash_walk import Place, open_place
from tests.faults.fleet import PATIENT, Fleet
from tests.faults.outside import forget_locks
from tests.servers import Server

StartFleet = Callable[..., Fleet]


@pytest.fixture
async def start_fleet(private_server: Callable[..., Server], tmp_path: Path) -> AsyncIterator[StartFleet]:
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
    return start_fleet(postgres_url, PEEKLOCK_REDIS_URL=redis_url, **PATIENT)


@pytest.fixture
def sqlite_fleet(start_fleet: StartFleet, run: Run, tmp_path: Path) -> Fleet:
    """A fleet of one on a SQLite file."""
    return start_fleet(f"sqlite:///{shutil.copy(run.sqlite_template(), tmp_path / 'peeklock.sqlite3')}")


@pytest.fixture(scope="module")
def sqlite_place(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Servers to be killed on a SQLite file."""
    directory = tmp_path_factory.mktemp("crash")
    database = f"sqlite:///{shutil.copy(run.sqlite_template(), directory / 'peeklock.sqlite3')}"
    yield from open_place(directory, database)


@pytest.fixture(scope="module")
def postgres_place(postgres_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Servers to be killed on PostgreSQL and Redis."""
    yield from open_place(tmp_path_factory.mktemp("crash"), postgres_url, PEEKLOCK_REDIS_URL=redis_url, **PATIENT)


@pytest.fixture(scope="module")
def mariadb_place(mariadb_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Servers to be killed on MariaDB and Redis."""
    yield from open_place(
        tmp_path_factory.mktemp("crash"),
        mariadb_url,
        PEEKLOCK_REDIS_URL=redis_url,
        PEEKLOCK_REDIS_PREFIX="mariadb:",
        **PATIENT,
    )
