"""Every test of the contract runs against every store."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.broker.ports.store import Store
from app.domain.queue import Queue
from tests.contract.store_fixture import (
    MariadbFixture,
    PostgresqlFixture,
    StoreFixture,
    sqlite_file,
    sqlite_in_memory,
)
from tests.databases import RunResources
from tests.shared_statements import open_shared

STORES = ["sqlite", "memory", "postgresql", "postgresql-shared", "mariadb"]
NIGHTLY = ("memory", "postgresql-shared")
"""SQLite without a file, and PostgreSQL with statements that always share a run."""


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.nightly) if name in NIGHTLY else name for name in STORES])
async def store_fixture(
    request: pytest.FixtureRequest, run_resources: RunResources, tmp_path: Path
) -> AsyncIterator[StoreFixture]:
    """An empty store."""
    store_fixture: StoreFixture
    match request.param:
        case "sqlite":
            store_fixture = sqlite_file(Path(shutil.copy(run_resources.sqlite_template(), tmp_path)))
        case "memory":
            store_fixture = sqlite_in_memory()
        case "postgresql":
            store_fixture = PostgresqlFixture(request.getfixturevalue("postgres_url"))
        case "postgresql-shared":
            store_fixture = PostgresqlFixture(request.getfixturevalue("postgres_url"), open_shared)
        case _:
            store_fixture = MariadbFixture(request.getfixturevalue("mariadb_url"))
    await store_fixture.open()
    yield store_fixture
    await store_fixture.close()


@pytest.fixture
async def queue(store_fixture: StoreFixture) -> Queue:
    """An empty queue with the default settings."""
    return await store_fixture.queue()


@pytest.fixture
async def stores(store_fixture: StoreFixture) -> AsyncIterator[list[Store]]:
    """The store, and a second one on the same database as in another process, if the engine allows several."""
    other = await store_fixture.open_another()
    yield [store_fixture.store, other]
    if other is not store_fixture.store:
        await other.close()
