"""Random histories of every operation: every store gives the same results and messages as the reference model."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.broker.state_histories import StateHistories
from tests.contract.store_fixture import MariadbFixture, PostgresqlFixture, StoreFixture, sqlite_file
from tests.databases import RunResources

EXAMPLES = {"sqlite": 50, "postgresql": 6, "mariadb": 6}
"""Histories per run. One history takes several times as long on a server."""
EXAMPLES_FACTOR = 20
"""The factor with --nightly."""


@pytest.fixture(params=["sqlite", "postgresql", pytest.param("mariadb", marks=pytest.mark.nightly)])
def store(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make_store_fixture(
    store: str, request: pytest.FixtureRequest, run_resources: RunResources, tmp_path: Path
) -> Callable[[], StoreFixture]:
    """Return a factory of the store under test, which is empty when a history begins."""
    match store:
        case "sqlite":
            file = Path(shutil.copy(run_resources.sqlite_template(), tmp_path))
            return lambda: sqlite_file(file)
        case "postgresql":
            url = request.getfixturevalue("postgres_url")
            return lambda: PostgresqlFixture(url)
        case _:
            url = request.getfixturevalue("mariadb_url")
            return lambda: MariadbFixture(url)


@pytest.mark.timeout(900)  # a failing history is reduced to its shortest form
def test_histories(store: str, make_store_fixture: Callable[[], StoreFixture], pytestconfig: pytest.Config) -> None:
    times = EXAMPLES_FACTOR if pytestconfig.getoption("--tier") == "nightly" else 1
    run_state_machine_as_test(
        lambda: StateHistories(make_store_fixture),
        settings=settings(
            max_examples=EXAMPLES[store] * times,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
