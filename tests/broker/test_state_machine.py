"""Random histories of every verb, against the reference model: the same answers and the same messages on every store."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.broker.histories import Histories
from tests.contract.subject import MariaSubject, PostgresSubject, Subject, sqlite_file
from tests.databases import Run

EXAMPLES = {"sqlite": 60, "postgresql": 12, "mariadb": 12}
"""Histories of each run; a server's store takes several times as long for one."""
TIMES_MORE = 10
"""With --faults=all."""


@pytest.fixture(params=list(EXAMPLES))
def store(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make_subject(store: str, request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> Callable[[], Subject]:
    """Makes the store under test; each has nothing in it when a history begins."""
    match store:
        case "sqlite":
            file = Path(shutil.copy(run.sqlite_template(), tmp_path))
            return lambda: sqlite_file(file)
        case "postgresql":
            url = request.getfixturevalue("postgres_url")
            return lambda: PostgresSubject(url)
        case _:
            url = request.getfixturevalue("mariadb_url")
            return lambda: MariaSubject(url)


@pytest.mark.timeout(900)  # a history that fails is looked for in its shortest form
def test_histories(store: str, make_subject: Callable[[], Subject], pytestconfig: pytest.Config) -> None:
    times = TIMES_MORE if pytestconfig.getoption("--faults") == "all" else 1
    run_state_machine_as_test(
        lambda: Histories(make_subject),
        settings=settings(
            max_examples=EXAMPLES[store] * times,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
