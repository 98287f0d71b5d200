"""Creates Spark sessions."""

import os
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from peeklock_pipeline.causes import cause_of
from peeklock_pipeline.refusals import SparkUnavailable

PACKAGE = Path(__file__).parent

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Default options come first, so options of the user win. Executors of a cluster use the cluster's logging.
    "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={(PACKAGE / 'log4j2.properties').as_uri()}",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Rows that are in the right partition already are aggregated once, and not in two steps.
    "spark.sql.execution.combineAdjacentAggregation": "true",
    # Spark looks at the files of a table before it reads them, by default in a task for each one.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    # The name of a queue may look like a number.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


QUERY_LOGGER = "SQLQueryContextLogger"
"""The logger with which Spark's Python client prints an error of a query, with its traceback, before it raises it."""

ATTEMPTS = 4
"""Attempts of a task that crashes; the same as the default of a cluster."""

THIS_MACHINE = re.compile(r"local(?:\[(\*|\d+)\])?")


def open_session(master: str = "local[*]", name: str = "peeklock-pipeline") -> SparkSession:
    """Return a session on this machine, or on the cluster that `master` names. Ships this package to executors.

    Tasks are retried locally as on a cluster, unless `local[cores,attempts]` sets another number. The executors' Python
    needs the packages of pyproject.toml; `PYSPARK_PYTHON` selects that Python. Refuses with `SparkUnavailable`.
    """
    _require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(_with_retries(master)).appName(name)
    for key, value in (SETTINGS | (LOCAL if is_local else {})).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkException as error:
        raise SparkUnavailable(f"Spark does not start: {cause_of(str(error))}") from error
    spark.sparkContext.setLogLevel("ERROR")
    PySparkLogger.getLogger(QUERY_LOGGER).disabled = True
    if not is_local:
        spark.sparkContext.addPyFile(str(_packaged_source()))
    return spark


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which(str(Path(home, "bin/java")) if home else "java") is None:
        place = f"JAVA_HOME is {home}, which has no bin/java" if home else "no `java` is in the PATH"
        raise SparkUnavailable(
            f"Spark needs Java 17, but {place}. Install it, for example with apt-get install openjdk-17-jre-headless."
        )


def _with_retries(master: str) -> str:
    """Return `master` with retries: locally, Spark fails with the first crashed task, and no setting changes that."""
    here = THIS_MACHINE.fullmatch(master)
    return f"local[{here[1] or 1},{ATTEMPTS}]" if here else master


def _packaged_source() -> Path:
    """Write this package to a zip file that executors can import."""
    target = Path(tempfile.mkdtemp(prefix="peeklock-pipeline-")) / "peeklock_pipeline.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(PACKAGE.parent))
    return target
