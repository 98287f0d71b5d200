"""One Spark session for the whole run, lakes, and archives on each engine that tests fill by SQL."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peeklock_pipeline import cli
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.session import open_session
from pyspark.sql import SparkSession

from tests.pipeline.archive import Archive

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 900
"""Longer than a test waits for a process with a JVM of its own."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""For a handful of rows, compiling each query costs more than it saves. Programs that tests start do what a job does."""

os.environ["SPARK_CONF_DIR"] = str(HERE / "spark")  # for the session here, and for every process that tests start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let pass what Spark and its Python client warn of in their own code, and give them their time."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"))
            # Sockets to the JVM are closed by whoever collects garbage.
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
    """Queries compiled as in a job, where a test is of what expressions compute."""
    for name in INTERPRETED:
        spark.conf.unset(name)
    yield
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)


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
def small_archive(sqlite_url: str) -> Archive:
    """An empty archive on the engine that costs least, where the engine does not matter."""
    return Archive.empty(sqlite_url)


RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_command(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> RunCommand:
    """Type `peeklock-pipeline ...` where Spark runs: exit status, what it prints, what it says on standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main([str(word) for word in words])
        said = capfd.readouterr()
        return end.value.code if isinstance(end.value.code, int) else 0, said.out, said.err

    return run


@pytest.fixture
def run_refused(run_command: RunCommand) -> Callable[..., str]:
    """What a command that must be refused says: one line, and nothing on standard output."""

    def run(*words: object) -> str:
        code, out, err = run_command(*words)
        assert (code, out) == (2, ""), err
        assert len(err.splitlines()) == 1
        return err

    return run
