"""One Spark session for the whole run, lakes, and archives on each engine that tests fill by SQL."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.session import open_session
from pyspark.sql import SparkSession

from tests.pipeline.archive import Archive

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let pass what Spark and its Python client warn of in their own code."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"))
            # Sockets to the JVM are closed by whoever collects garbage.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of this run, as a job opens it on one machine: two cores, and four attempts at each task."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = open_session("local[2,4]", "peeklock-tests")
        yield session
        session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake that nothing was exported to."""
    return Lake(tmp_path / "lake")


@pytest.fixture(params=["postgresql", "mariadb", "sqlite"])
def archive(request: pytest.FixtureRequest) -> Archive:
    """An empty archive, on each engine in turn."""
    urls = {"postgresql": "postgres_url", "mariadb": "mariadb_url", "sqlite": "sqlite_url"}
    return Archive.empty(request.getfixturevalue(urls[request.param]))


@pytest.fixture
def small(sqlite_url: str) -> Archive:
    """An empty archive on the engine that costs least, where the engine does not matter."""
    return Archive.empty(sqlite_url)
