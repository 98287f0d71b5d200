"""Every fence is needed: with all of them every scenario passes, without any one of them some scenario fails."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, closing
from functools import partial
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
from tests.shared_statements import SharedStatementSession

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


async def open_postgresql_setup(
    url: str, statements: Mapping[str, Any], session_class: type[PostgresqlSession] = PostgresqlSession
) -> StoreSetup:
    where = parse_address(f"{url}?synchronous_commit=off")  # nothing here outlives a power cut, nor has to

    async def new_session() -> PostgresqlSession:
        return session_class(await connect(where), statements)

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
    Engine.SQLITE: [open_sqlite_setup],
    # A single caller, and one that is served like many.
    Engine.POSTGRESQL: [open_postgresql_setup, partial(open_postgresql_setup, session_class=SharedStatementSession)],
    Engine.MYSQL: [open_mysql_setup],
}


async def open_setups(
    engine: Engine, url: str, statements: Mapping[str, Statement]
) -> AsyncGenerator[tuple[StoreSetup, RecordingStatements]]:
    """Each scene with these statements, and which of them it has used."""
    test_statements = with_test_statements(engine, statements)
    for open_setup in OPEN_SETUP[engine]:
        recording = RecordingStatements({name: PREPARE[engine](one) for name, one in test_statements.items()})
        setup = await open_setup(url, recording)
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
    async for setup, _ in open_setups(engine, url, statements(engine)):
        await scenario(setup)


async def test_without_any_one_fence_some_scenario_fails(engine: Engine, url: str) -> None:
    weakened = removed_fences(engine)
    assert len(weakened) > 30  # or the marks in the files were not found
    unnoticed = [removed_fence for removed_fence in weakened if not await is_noticed(engine, url, removed_fence)]
    unused = await unused_statements(engine, url)
    assert [str(removed_fence) for removed_fence in unnoticed if removed_fence.statement not in unused] == []


async def is_noticed(engine: Engine, url: str, removed_fence: RemovedFence) -> bool:
    async with aclosing(open_setups(engine, url, removed_fence.statements)) as setups:
        async for setup, _ in setups:
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
    own = {statement.name for statement in parse(DIALECTS[engine].own_text, DIALECTS[engine])}
    unused = set(statements(engine)) - own
    async for setup, recording in open_setups(engine, url, statements(engine)):
        for scenario in SCENARIOS:
            await scenario(setup)
        unused -= recording.used
    return unused
