"""Every fence is needed: without it, a test of the contract fails that is marked with its kind and passes with it.

A full run proves those whose proof is not in the record, because their statement or its test has changed; a nightly run all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import pytest

from app.broker.ports.store import Store
from app.store.shared.statements import Statement
from app.store.url import EngineName
from tests.changed_stores import open_mysql, open_postgresql, open_sqlite
from tests.contract.store_fixture import MariadbFixture, PostgresqlFixture, SqliteFixture, StoreFixture
from tests.dialects import statements
from tests.faults.fenced_tests import FencedTest, fenced_tests
from tests.faults.proven_fences import Proof, ProvenFences, proof_of
from tests.faults.removed_fences import RemovedFence, removed_fences
from tests.shared_statements import RecordedStatementSession, SharedRecordedStatementSession, SharedStatementSession

TESTS = fenced_tests("contract")


@dataclass(frozen=True, slots=True)
class StoreKind:
    """One way to run the statements of an engine. `url_fixture` names the fixture with the address of a database."""

    engine: EngineName
    url_fixture: str
    make_fixture: Callable[..., StoreFixture]
    opener: Callable[..., Awaitable[Store]]


open_shared = partial(open_postgresql, session_class=SharedStatementSession)
STORES = {
    "sqlite": StoreKind(EngineName.SQLITE, "sqlite_url", SqliteFixture, open_sqlite),
    "postgresql": StoreKind(EngineName.POSTGRESQL, "fast_postgres_url", PostgresqlFixture, open_postgresql),
    "postgresql-shared": StoreKind(EngineName.POSTGRESQL, "fast_postgres_url", PostgresqlFixture, open_shared),
    "postgresql-recorded": StoreKind(
        EngineName.POSTGRESQL,
        "fast_postgres_url",
        PostgresqlFixture,
        partial(open_postgresql, session_class=RecordedStatementSession),
    ),
    "postgresql-recorded-shared": StoreKind(
        EngineName.POSTGRESQL,
        "fast_postgres_url",
        PostgresqlFixture,
        partial(open_postgresql, session_class=SharedRecordedStatementSession),
    ),
    "mariadb": StoreKind(EngineName.MYSQL, "mariadb_url", MariadbFixture, open_mysql),
}
CONTRACT_STORES = ("sqlite", "postgresql", "mariadb")
"""On these, the contract itself shows that the marked tests pass."""


def store_of(fence: RemovedFence) -> str:
    """Return the store that runs the statement of the fence."""
    match fence.engine:
        case EngineName.SQLITE:
            return "sqlite"
        case EngineName.POSTGRESQL:
            name = fence.statement.removesuffix("_one")
            recorded = "-recorded" if name.endswith("_recorded") else ""
            return f"postgresql{recorded}" if name != fence.statement else f"postgresql{recorded}-shared"
        case EngineName.MYSQL:
            return "mariadb"


@cache
def fences_by_store() -> Mapping[str, Sequence[RemovedFence]]:
    """The fences that each store runs."""
    found: dict[str, list[RemovedFence]] = {}
    for engine in EngineName:
        for fence in removed_fences(engine):
            found.setdefault(store_of(fence), []).append(fence)
    return found


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


@pytest.mark.parametrize("store", [name for name in STORES if name not in CONTRACT_STORES])
async def test_with_every_fence_the_marked_tests_pass(open_with: OpenStore, store: str) -> None:
    async with open_with(store, statements(STORES[store].engine)) as store_fixture:
        assert [test.name for test in TESTS if not await passes(test, store_fixture)] == []


@pytest.mark.parametrize("store", STORES)
async def test_without_a_fence_a_test_marked_with_its_kind_fails(
    open_with: OpenStore, pytestconfig: pytest.Config, store: str
) -> None:
    record = ProvenFences()
    recorded = record.read()
    known = set[Proof]() if pytestconfig.getoption("--tier") == "nightly" else recorded
    proofs, unnoticed, proving = set[Proof](), list[str](), set[FencedTest]()
    for fence in fences_by_store()[store]:
        marked = [test for test in TESTS if fence.kind in test.kinds]
        if held := known & {proof_of(store, fence, test) for test in marked}:
            proofs |= held
        elif test := await failing_test(open_with, store, fence, likely_first(marked, fence, recorded)):
            proofs.add(proof_of(store, fence, test))
            proving.add(test)
        else:
            unnoticed.append(str(fence))
    assert not unnoticed, "no test that is marked with their kinds notices"
    if proving:
        async with open_with(store, statements(STORES[store].engine)) as store_fixture:
            failing = [test.name for test in proving if not await passes(test, store_fixture)]
        assert not failing, "they fail with every fence too, so they prove none"
    if proofs != {proof for proof in recorded if proof.store == store}:
        record.replace(store, proofs)


def likely_first(marked: Sequence[FencedTest], fence: RemovedFence, recorded: Iterable[Proof]) -> Sequence[FencedTest]:
    """Return the tests with those first that have proven a fence of this kind in this statement, on any store."""
    likely = {
        proof.test
        for proof in recorded
        if place_of(proof.statement, proof.kind) == place_of(fence.statement, fence.kind)
    }
    return sorted(marked, key=lambda test: test.name not in likely)


def place_of(statement: str, kind: str) -> tuple[str, str]:
    """Return the statement without what its name says of its form, and the kind of its fence."""
    return statement.removesuffix("_one").removesuffix("_recorded"), kind


async def failing_test(
    open_with: OpenStore, store: str, fence: RemovedFence, marked: Iterable[FencedTest]
) -> FencedTest | None:
    """Return the first of these tests that fails without the fence."""
    async with open_with(store, fence.statements) as store_fixture:
        for test in marked:
            if not await passes(test, store_fixture):
                return test
    return None


@pytest.mark.quick
def test_the_record_names_only_fences_that_exist() -> None:
    existing = {(store, fence.statement, fence.kind) for store, fences in fences_by_store().items() for fence in fences}
    assert {proof[:3] for proof in ProvenFences().read()} <= existing, (
        "python3 dev.py test --nightly tests/faults/test_fences.py"
    )


async def test_every_marked_test_fails_without_some_fence(open_with: OpenStore) -> None:
    idle = {(test.name, kind) for test in TESTS for kind in test.kinds}
    for fence in removed_fences(EngineName.SQLITE):
        async with open_with("sqlite", fence.statements) as store_fixture:
            tests = [test for test in TESTS if (test.name, fence.kind) in idle]
            idle -= {(test.name, fence.kind) for test in tests if not await passes(test, store_fixture)}
    assert idle == set()


@pytest.mark.quick
def test_a_proof_ends_with_a_change_of_the_statement_or_of_the_test() -> None:
    fence, *_ = fences_by_store()["sqlite"]
    test, other = (test for test in TESTS if test.name in {TESTS[0].name, TESTS[-1].name} and not test.parameters)
    statement = replace(fence.statements[fence.statement], text="SELECT 1")
    changed = replace(fence, statements={**fence.statements, fence.statement: statement})
    assert len({proof_of("sqlite", *proven).digest for proven in ((fence, test), (changed, test), (fence, other))}) == 3


@pytest.mark.quick
def test_the_proofs_of_one_store_are_replaced_alone(tmp_path: Path) -> None:
    record = ProvenFences(tmp_path / "record.txt")
    record.file.write_text("one a token test_a 1\none b token test_b 2\ntwo a token test_a 3\n")
    record.replace("one", [Proof("one", "c", "token", "test_c", "4")])
    assert record.file.read_text() == "one c token test_c 4\ntwo a token test_a 3\n"


def test_the_fences_of_every_store_are_found() -> None:
    assert fences_by_store().keys() == STORES.keys()
    assert min(Counter(fence.engine for fences in fences_by_store().values() for fence in fences).values()) > 70
