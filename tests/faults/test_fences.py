"""Every fence is needed: with all of them every scenario passes, without any one of them some scenario fails."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from importlib.resources import files
from typing import Any

import pytest

from app.runtime.clock import SystemClock
from app.store.mysql import MysqlStore
from app.store.mysql_connect import Connector
from app.store.mysql_text import template
from app.store.open import ignore_batches
from app.store.pool import Pool
from app.store.postgresql import PostgresStore
from app.store.postgresql_session import PreparedStatement, Session, address, connect
from app.store.presence import Presence
from app.store.sqlite import SqliteStore
from app.store.sqlite_database import SqliteDatabase
from app.store.statements import Engine, Statement, load, parse
from tests.faults.fences import SCENARIOS, Scenario
from tests.faults.scene import Scene, with_tricks
from tests.faults.weakenings import Weakening, weakenings

ENGINES = [Engine.SQLITE, Engine.POSTGRESQL, pytest.param(Engine.MYSQL, marks=pytest.mark.faults("all"))]
CONNECTIONS = 2


class Watched(dict[str, Statement]):
    """Statements that remember which of them were wanted."""

    def __init__(self, statements: Mapping[str, Statement]) -> None:
        super().__init__(statements)
        self.wanted: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.wanted.add(name)
        return super().__getitem__(name)


async def sqlite_scene(url: str, statements: Mapping[str, Statement]) -> Scene:
    database = SqliteDatabase(None, SystemClock(), ignore_batches, statements)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as tables:
        await database.call_on_writer(tables.backup)
    return Scene(SqliteStore(database), database)


async def postgresql_scene(url: str, statements: Mapping[str, Any]) -> Scene:
    where = address(f"{url}?synchronous_commit=off")  # nothing here outlives a power cut, nor has to

    async def new_session() -> Session:
        return Session(await connect(where), statements)

    pool = Pool(new_session, CONNECTIONS)
    return Scene(PostgresStore(pool, None, SystemClock(), ignore_batches), pool)


async def mysql_scene(url: str, statements: Mapping[str, Any]) -> Scene:
    connector = Connector(url, statements)
    pool = Pool(connector, CONNECTIONS)
    return Scene(MysqlStore(pool, Presence(connector), SystemClock(), ignore_batches), pool)


PREPARE: Mapping[Engine, Callable[[Statement], Any]] = {
    Engine.SQLITE: lambda statement: statement,
    Engine.POSTGRESQL: PreparedStatement,
    Engine.MYSQL: template,
}
OPEN = {Engine.SQLITE: sqlite_scene, Engine.POSTGRESQL: postgresql_scene, Engine.MYSQL: mysql_scene}


@asynccontextmanager
async def scene_of(
    engine: Engine, url: str, statements: Mapping[str, Statement]
) -> AsyncIterator[tuple[Scene, Watched]]:
    """A scene with these statements, and which of them it has used."""
    tricky = with_tricks(engine, statements)
    watched = Watched({name: PREPARE[engine](statement) for name, statement in tricky.items()})
    scene = await OPEN[engine](url, watched)
    try:
        yield scene, watched
    finally:
        await scene.store.close()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


@pytest.fixture
def url(engine: Engine, request: pytest.FixtureRequest) -> str:
    fixtures = {Engine.POSTGRESQL: "postgres_url", Engine.MYSQL: "mariadb_url", Engine.SQLITE: "sqlite_url"}
    return request.getfixturevalue(fixtures[engine])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_with_every_fence(engine: Engine, url: str, scenario: Scenario) -> None:
    async with scene_of(engine, url, load(engine)) as (scene, _):
        await scenario(scene)


async def test_without_any_one_fence_some_scenario_fails(engine: Engine, url: str) -> None:
    weakened = weakenings(engine)
    assert len(weakened) > 30  # or the marks in the files were not found
    unnoticed = [weakening for weakening in weakened if not await is_noticed(engine, url, weakening)]
    unused = await unused_statements(engine, url)
    assert [str(weakening) for weakening in unnoticed if weakening.statement not in unused] == []


async def is_noticed(engine: Engine, url: str, weakening: Weakening) -> bool:
    async with scene_of(engine, url, weakening.statements) as (scene, _):
        for scenario in SCENARIOS:
            try:
                await scenario(scene)
            except AssertionError:
                return True
    return False


async def unused_statements(engine: Engine, url: str) -> set[str]:
    """Those of common.sql that this engine does without, but SQLite does not; each of its own must be used."""
    if engine is Engine.SQLITE:
        return set()
    async with scene_of(engine, url, load(engine)) as (scene, watched):
        for scenario in SCENARIOS:
            await scenario(scene)
    own = {statement.name for statement in parse((files("app.store") / "sql" / f"{engine}.sql").read_text(), engine)}
    return set(watched) - watched.wanted - own
