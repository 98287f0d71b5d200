"""Every fence is needed: with all of them every scenario passes, without any one of them some scenario fails."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.runtime.clock import SystemClock
from app.store.open import ignore_batches
from app.store.sqlite import SqliteStore
from app.store.sqlite_database import SqliteDatabase
from app.store.statements import Engine, Statement, load
from tests.databases import Run
from tests.faults.fences import SCENARIOS, Scenario, Scene, Weakening, weakenings

ENGINES = [Engine.SQLITE]


@asynccontextmanager
async def sqlite_scene(url: str, statements: Mapping[str, Statement]) -> AsyncIterator[Scene]:
    path = Path(url.removeprefix("sqlite:///"))
    store = SqliteStore(SqliteDatabase(path, SystemClock(), ignore_batches, statements))
    yield Scene(store, url)
    await store.close()


OPEN = {Engine.SQLITE: sqlite_scene}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


@pytest.fixture
def url(engine: Engine, request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> str:
    fixture = {Engine.POSTGRESQL: "postgres_url", Engine.MYSQL: "mariadb_url"}.get(engine)
    if fixture is not None:
        return request.getfixturevalue(fixture)
    return f"sqlite:///{shutil.copy(run.sqlite_template(), tmp_path / 'peeklock.sqlite3')}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_with_every_fence(engine: Engine, url: str, scenario: Scenario) -> None:
    async with OPEN[engine](url, load(engine)) as scene:
        await scenario(scene)


async def test_without_any_one_fence_some_scenario_fails(engine: Engine, url: str) -> None:
    weakened = weakenings(engine)
    assert len(weakened) > 30  # or the marks in the files were not found
    unnoticed = [str(weakening) for weakening in weakened if not await is_noticed(OPEN[engine], url, weakening)]
    assert unnoticed == []


async def is_noticed(open_scene: Callable[..., Any], url: str, weakening: Weakening) -> bool:
    async with open_scene(url, weakening.statements) as scene:
        for scenario in SCENARIOS:
            try:
                await scenario(scene)
            except AssertionError:
                return True
    return False
