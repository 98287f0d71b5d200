"""One Spark session for the whole run, lakes, and archives on each engine that tests fill by SQL."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from peeklock_pipeline import cli
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.session import open_session
from pyspark.sql import SparkSession

from tests.databases import RunResources
from tests.docs.other_brokers import Moto, serving
from tests.pipeline.archive import Archive
from tests.pipeline.azurite import Azurite
from tests.pipeline.faulty_store import FaultyStore
from tests.pipeline.object_store import AzureStore, GoogleStore, ObjectStore

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 900
"""Longer than a test waits for a process with a JVM of its own."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""For few rows, compiling each query costs more than it saves. Programs that tests start use the settings of a job."""

os.environ["SPARK_CONF_DIR"] = str(HERE / "spark")  # for this session, and for every process that tests start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of Spark and its Python client about their own code, and set the timeout."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"))
            # The garbage collector closes sockets to the JVM.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of this run, as a job opens it on one machine of two cores, but without compiled queries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = open_session("local[2]", "peeklock-tests")
        for name, value in INTERPRETED.items():
            session.conf.set(name, value)
        yield session
        session.stop()


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Compile queries as in a job, for tests of expressions."""
    for name in INTERPRETED:
        spark.conf.unset(name)
    yield
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake(tmp_path / "lake")


@pytest.fixture(
    params=["postgresql", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("mariadb", "sqlite"))]
)
def archive(request: pytest.FixtureRequest) -> Archive:
    """An empty archive, on each engine in turn. Tests with `small_archive` show on SQLite what jobs do."""
    return archive_on(request.param, request)


def archive_on(engine: str, request: pytest.FixtureRequest) -> Archive:
    """Return an empty archive on an engine."""
    urls = {"postgresql": "postgres_url", "mariadb": "mariadb_url", "sqlite": "sqlite_url"}
    return Archive.empty(request.getfixturevalue(urls[engine]))


@pytest.fixture
def small_archive(sqlite_url: str) -> Archive:
    """An empty archive on the cheapest engine, for tests that do not depend on the engine."""
    return Archive.empty(sqlite_url)


@pytest.fixture(scope="session")
def s3_store(run_resources: RunResources) -> Iterator[ObjectStore]:
    """A server that answers as Amazon S3 does, with one bucket."""
    server = Moto(run_resources.new_directory())
    with serving(server):
        yield ObjectStore.with_bucket(server.url)


@pytest.fixture(scope="session")
def azure_store(run_resources: RunResources) -> Iterator[AzureStore]:
    """A server that answers as Azure Blob Storage does, with one container."""
    server = Azurite(run_resources.new_directory())
    with serving(server):
        yield AzureStore.with_bucket(server.url)


@pytest.fixture(scope="session")
def google_store(run_resources: RunResources, s3_store: ObjectStore) -> Iterator[GoogleStore]:
    """The bucket of the server of Amazon S3, reached as one of Google Cloud Storage is."""
    server = FaultyStore(run_resources.new_directory(), s3_store.url)
    with serving(server):
        yield GoogleStore(server.url)


@pytest.fixture(params=["s3", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("azure", "google"))])
def object_store(request: pytest.FixtureRequest) -> ObjectStore:
    """A bucket of each object store in turn."""
    return cast("ObjectStore", request.getfixturevalue(f"{request.param}_store"))


@pytest.fixture
def remote_lake(object_store: ObjectStore) -> Lake:
    """An empty lake in a bucket."""
    return object_store.lake()


RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_command(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> RunCommand:
    """Run `peeklock-pipeline ...` in this process; returns exit status, standard output and standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main([str(word) for word in words])
        captured = capfd.readouterr()
        return end.value.code if isinstance(end.value.code, int) else 0, captured.out, captured.err

    return run


@pytest.fixture
def run_refused(run_command: RunCommand) -> Callable[..., str]:
    """Run a command that must be refused; returns its one line, and checks that standard output is empty."""

    def run(*words: object) -> str:
        code, out, err = run_command(*words)
        assert (code, out) == (2, ""), err
        assert len(err.splitlines()) == 1
        return err

    return run
