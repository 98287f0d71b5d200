"""Every fence is needed: without it, a test of the contract fails that is marked with its kind and passes with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from app.broker.ports import Store
from app.store.shared.statements import Statement
from app.store.url import Engine
from tests.changed_stores import open_mysql, open_postgresql, open_sqlite
from tests.contract.store_fixture import MariadbFixture, PostgresqlFixture, SqliteFixture, StoreFixture
from tests.dialects import statements
from tests.faults.fenced_tests import FencedTest, fenced_tests
from tests.faults.removed_fences import RemovedFence, removed_fences
from tests.shared_statements import RecordedStatementSession, SharedRecordedStatementSession, SharedStatementSession

TESTS = fenced_tests("contract")


@dataclass(frozen=True, slots=True)
class StoreKind:
    """One way to run the statements of an engine. `url_fixture` names the fixture with the address of a database."""

    engine: Engine
    url_fixture: str
    make_fixture: Callable[..., StoreFixture]
    opener: Callable[..., Awaitable[Store]]


open_shared = partial(open_postgresql, session_class=SharedStatementSession)
STORES = {
    "sqlite": StoreKind(Engine.SQLITE, "sqlite_url", SqliteFixture, open_sqlite),
    "postgresql": StoreKind(Engine.POSTGRESQL, "fast_postgres_url", PostgresqlFixture, open_postgresql),
    "postgresql-shared": StoreKind(Engine.POSTGRESQL, "fast_postgres_url", PostgresqlFixture, open_shared),
    "postgresql-recorded": StoreKind(
        Engine.POSTGRESQL,
        "fast_postgres_url",
        PostgresqlFixture,
        partial(open_postgresql, session_class=RecordedStatementSession),
    ),
    "postgresql-recorded-shared": StoreKind(
        Engine.POSTGRESQL,
        "fast_postgres_url",
        PostgresqlFixture,
        partial(open_postgresql, session_class=SharedRecordedStatementSession),
    ),
    "mariadb": StoreKind(Engine.MYSQL, "mariadb_url", MariadbFixture, open_mysql),
}


def store_of(fence: RemovedFence) -> str:
    """Return the store that runs the statement of the fence."""
    match fence.engine:
        case Engine.SQLITE:
            return "sqlite"
        case Engine.POSTGRESQL:
            name = fence.statement.removesuffix("_one")
            recorded = "-recorded" if name.endswith("_recorded") else ""
            return f"postgresql{recorded}" if name != fence.statement else f"postgresql{recorded}-shared"
        case Engine.MYSQL:
            return "mariadb"


FENCES = {f"{store_of(fence)}-{fence}": fence for engine in Engine for fence in removed_fences(engine)}


@pytest.fixture
def fast_postgres_url(postgres_url: str) -> str:
    """A database that acknowledges commits early: nothing here has to survive a power cut."""
    return f"{postgres_url}?synchronous_commit=off"


OpenStore = Callable[[str, Mapping[str, Statement]], AbstractAsyncContextManager[StoreFixture]]


@pytest.fixture
def open_with(request: pytest.FixtureRequest) -> OpenStore:
    """Open an empty store with other statements."""

    @asynccontextmanager
    async def open_store(store: str, statements: Mapping[str, Statement]) -> AsyncIterator[StoreFixture]:
        kind = STORES[store]
        url = request.getfixturevalue(kind.url_fixture)
        store_fixture = kind.make_fixture(url, partial(kind.opener, statements=statements))
        await store_fixture.open()
        try:
            yield store_fixture
        finally:
            await store_fixture.close()

    return open_store


async def passes(test: FencedTest, store_fixture: StoreFixture) -> bool:
    """Run the test on the store, which it finds empty. Return whether its assertions hold."""
    await store_fixture.delete_all_rows()
    return await test.passes(store_fixture=store_fixture, queue=await store_fixture.queue())


@pytest.mark.parametrize("store", STORES)
async def test_with_every_fence_the_marked_tests_pass(open_with: OpenStore, store: str) -> None:
    async with open_with(store, statements(STORES[store].engine)) as store_fixture:
        assert [test.name for test in TESTS if not await passes(test, store_fixture)] == []


@pytest.fixture(scope="module")
def failed_before() -> dict[tuple[str, str], FencedTest]:
    """The test that failed without a fence of this kind in this statement, on another engine."""
    return {}


@pytest.mark.parametrize("name", FENCES)
async def test_without_a_fence_a_test_marked_with_its_kind_fails(
    open_with: OpenStore, failed_before: dict[tuple[str, str], FencedTest], name: str
) -> None:
    fence = FENCES[name]
    place = (fence.statement.removesuffix("_one").removesuffix("_recorded"), fence.kind)
    marked = [test for test in TESTS if fence.kind in test.kinds]
    async with open_with(store_of(fence), fence.statements) as store_fixture:
        for test in sorted(marked, key=lambda test: test is not failed_before.get(place)):
            if not await passes(test, store_fixture):
                failed_before[place] = test
                return
    pytest.fail(f"no test that is marked with {fence.kind} notices")


async def test_every_marked_test_fails_without_some_fence(open_with: OpenStore) -> None:
    idle = {(test.name, kind) for test in TESTS for kind in test.kinds}
    for fence in removed_fences(Engine.SQLITE):
        async with open_with("sqlite", fence.statements) as store_fixture:
            tests = [test for test in TESTS if (test.name, fence.kind) in idle]
            idle -= {(test.name, fence.kind) for test in tests if not await passes(test, store_fixture)}
    assert idle == set()


def test_the_fences_of_every_store_are_found() -> None:
    assert {store_of(fence) for fence in FENCES.values()} == STORES.keys()
    assert min(Counter(fence.engine for fence in FENCES.values()).values()) > 70
