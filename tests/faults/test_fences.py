"""Every fence is needed: with all of them every scenario passes, without any one of them some scenario fails."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from app.runtime.clock import SystemClock
from app.store.mysql.connect import Connector
from app.store.mysql.store import MysqlStore
from app.store.mysql.templates import template
from app.store.open import ignore_batches
from app.store.postgresql.session import PostgresqlSession, PreparedStatement, connect, parse_address
from app.store.postgresql.store import PostgresqlStore
from app.store.records.statements import Statement, parse
from app.store.server.advisory_lock import AdvisoryLock
from app.store.server.pool import Pool
from app.store.sqlite.database import SqliteDatabase
from app.store.sqlite.store import SqliteStore
from app.store.url import Engine
from tests.dialects import DIALECTS, statements
from tests.faults.fence_scenarios import SCENARIOS, Scenario
from tests.faults.removed_fences import RemovedFence, removed_fences
from tests.faults.store_setup import StoreSetup, with_test_statements

ENGINES = [Engine.SQLITE, Engine.POSTGRESQL, pytest.param(Engine.MYSQL, marks=pytest.mark.faults("all"))]
CONNECTIONS = 2


class RecordingStatements(dict[str, Statement]):
    """Statements that remember which of them were wanted."""

    def __init__(self, statements: Mapping[str, Statement]) -> None:
        super().__init__(statements)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.used.add(name)
        return super().__getitem__(name)


async def open_sqlite_setup(url: str, statements: Mapping[str, Statement]) -> StoreSetup:
    database = SqliteDatabase(None, SystemClock(), ignore_batches, statements)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as tables:
        await database.call_on_writer(tables.backup)
    return StoreSetup(SqliteStore(database), database)


async def open_postgresql_setup(url: str, statements: Mapping[str, Any]) -> StoreSetup:
    where = parse_address(f"{url}?synchronous_commit=off")  # nothing here outlives a power cut, nor has to

    async def new_session() -> PostgresqlSession:
        return PostgresqlSession(await connect(where), statements)

    pool = Pool(new_session, CONNECTIONS)
    return StoreSetup(PostgresqlStore(pool, None, SystemClock(), ignore_batches), pool)


async def open_mysql_setup(url: str, statements: Mapping[str, Any]) -> StoreSetup:
    connector = Connector(url, statements)
    pool = Pool(connector, CONNECTIONS)
    return StoreSetup(MysqlStore(pool, AdvisoryLock(connector), SystemClock(), ignore_batches), pool)


PREPARE: Mapping[Engine, Callable[[Statement], Any]] = {
    Engine.SQLITE: lambda statement: statement,
    Engine.POSTGRESQL: PreparedStatement,
    Engine.MYSQL: template,
}
OPEN_SETUP = {
    Engine.SQLITE: open_sqlite_setup,
    Engine.POSTGRESQL: open_postgresql_setup,
    Engine.MYSQL: open_mysql_setup,
}


@asynccontextmanager
async def open_setup(
    engine: Engine, url: str, statements: Mapping[str, Statement]
) -> AsyncIterator[tuple[StoreSetup, RecordingStatements]]:
    """A scene with these statements, and which of them it has used."""
    test_statements = with_test_statements(engine, statements)
    recording = RecordingStatements({name: PREPARE[engine](statement) for name, statement in test_statements.items()})
    setup = await OPEN_SETUP[engine](url, recording)
    try:
        yield setup, recording
    finally:
        await setup.store.close()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


@pytest.fixture
def url(engine: Engine, request: pytest.FixtureRequest) -> str:
    fixtures = {Engine.POSTGRESQL: "postgres_url", Engine.MYSQL: "mariadb_url", Engine.SQLITE: "sqlite_url"}
    return request.getfixturevalue(fixtures[engine])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_with_every_fence(engine: Engine, url: str, scenario: Scenario) -> None:
    async with open_setup(engine, url, statements(engine)) as (setup, _):
        await scenario(setup)


async def test_without_any_one_fence_some_scenario_fails(engine: Engine, url: str) -> None:
    weakened = removed_fences(engine)
    assert len(weakened) > 30  # or the marks in the files were not found
    unnoticed = [removed_fence for removed_fence in weakened if not await is_noticed(engine, url, removed_fence)]
    unused = await unused_statements(engine, url)
    assert [str(removed_fence) for removed_fence in unnoticed if removed_fence.statement not in unused] == []


async def is_noticed(engine: Engine, url: str, removed_fence: RemovedFence) -> bool:
    async with open_setup(engine, url, removed_fence.statements) as (setup, _):
        for scenario in SCENARIOS:
            try:
                await scenario(setup)
            except AssertionError:
                return True
    return False


async def unused_statements(engine: Engine, url: str) -> set[str]:
    """Those of common.sql that this engine does without, but SQLite does not; each of its own must be used."""
    if engine is Engine.SQLITE:
        return set()
    async with open_setup(engine, url, statements(engine)) as (setup, recording):
        for scenario in SCENARIOS:
            await scenario(setup)
    own = {statement.name for statement in parse(DIALECTS[engine].own_text, DIALECTS[engine])}
    return set(recording) - recording.used - own
