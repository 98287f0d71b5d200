"""The one place where a Spark session is made."""

import os
import re
import sys
import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

PACKAGE = Path(__file__).parent

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Before the options that people set, so that theirs win. Executors of a cluster log where the cluster keeps logs.
    "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={(PACKAGE / 'log4j2.properties').as_uri()}",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The name of a queue may look like a number.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


ATTEMPTS = 4
"""How often a task that dies is tried in all; what a cluster does unless it is told otherwise."""

THIS_MACHINE = re.compile(r"local(?:\[(\*|\d+)\])?")


def open_session(master: str = "local[*]", name: str = "peeklock-pipeline") -> SparkSession:
    """A session on this machine, or on the cluster that `master` names, whose executors are given this package.

    Tasks are repeated here as they are there, unless `local[cores,attempts]` says otherwise. The Python of executors
    needs what pyproject.toml names; `PYSPARK_PYTHON` says which Python that is.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(_with_retries(master)).appName(name)
    for key, value in (SETTINGS | (LOCAL if is_local else {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if not is_local:
        spark.sparkContext.addPyFile(str(_packaged_source()))
    return spark


def _with_retries(master: str) -> str:
    """On this machine Spark gives up with the first task that dies, and listens to no setting about it."""
    here = THIS_MACHINE.fullmatch(master)
    return f"local[{here[1] or 1},{ATTEMPTS}]" if here else master


def _packaged_source() -> Path:
    """This package as an archive that executors can import from."""
    target = Path(tempfile.mkdtemp(prefix="peeklock-pipeline-")) / "peeklock_pipeline.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(PACKAGE.parent))
    return target
