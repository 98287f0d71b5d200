"""A standalone cluster: a master and two workers, whose executors know this package only by what the driver ships."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import httpx
import pyspark
import pytest

from tests.pipeline.archive import Archive, archived
from tests.servers import POLL_SECONDS, end_tree, free_port

SPARK = Path(pyspark.__file__).parent
PACKAGES = SPARK.parent
TIMEOUT_SECONDS = 600.0


class Cluster:
    """A master and workers on the loopback, ended by their numbers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port, self.page = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{self.port}"

    def start(self, workers: int) -> None:
        """Start them; return once the master knows all workers."""
        reach = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.page)]
        self._run("master.Master", *reach)
        self._wait(lambda: self.workers() is not None)
        for number in range(workers):
            own = ["--work-dir", str(self._directory / f"worker-{number}"), "--webui-port", str(free_port())]
            self._run("worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "700m", *own, self.url)
        self._wait(lambda: self.workers() == workers)

    def workers(self) -> int | None:
        """How many workers have come to the master; None while it does not answer, or not yet in JSON."""
        try:
            return int(httpx.get(f"http://127.0.0.1:{self.page}/json/").json()["aliveworkers"])
        except (httpx.TransportError, json.JSONDecodeError):
            return None

    def end(self) -> None:
        """Leave nothing of it behind."""
        for process in reversed(self._processes):
            end_tree(process.pid, signal.SIGKILL)
            process.wait()

    def log(self) -> str:
        """What all of them have said."""
        return "\n".join(file.read_text(errors="replace")[-3000:] for file in sorted(self._directory.glob("*.log")))

    def _run(self, kind: str, *arguments: str) -> None:
        cheap = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        environment = os.environ | cheap | {"SPARK_LOCAL_IP": "127.0.0.1"}
        with (self._directory / f"{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments],
                cwd=self._directory, env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not is_done():
            assert time.monotonic() < deadline, self.log()
            assert all(process.poll() is None for process in self._processes), self.log()
            time.sleep(POLL_SECONDS * 10)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master with two workers."""
    directory = tmp_path / "cluster"
    directory.mkdir()
    found = Cluster(directory)
    try:
        found.start(workers=2)
        yield found
    finally:
        found.end()


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that has the libraries, but not this package: what it is installed by works in its own place alone."""
    venv.create(tmp_path / "bare", symlinks=True)
    (packages,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    (packages / "libraries.pth").write_text(f"{PACKAGES}\n")
    python = tmp_path / "bare" / "bin" / "python"
    assert subprocess.run([python, "-c", "import pyspark, pyarrow, httpx"], check=False).returncode == 0
    tried = subprocess.run([python, "-c", "import peeklock_pipeline"], check=False, capture_output=True, cwd=tmp_path)
    assert b"ModuleNotFoundError" in tried.stderr
    return python


PROGRAM = """
    import json
    import sys
    from pathlib import Path

    import pyarrow as pa
    from peeklock_pipeline import source
    from peeklock_pipeline.database import Database
    from peeklock_pipeline.jobs.audit import audit
    from peeklock_pipeline.jobs.export import export
    from peeklock_pipeline.lake import Lake
    from peeklock_pipeline.session import open_session

    master, url, root = sys.argv[1:]

    def seen(batches):
        import os
        import peeklock_pipeline

        for batch in batches:
            report = {"executor": os.getcwd(), "package": peeklock_pipeline.__file__}
            yield pa.RecordBatch.from_pylist([report] * batch.num_rows)

    spark = open_session(master)
    done = export(spark, Database.from_url(url), Lake(root))
    source.register(spark)
    rows = spark.read.format("peeklock").option("databaseUrl", url).load()
    places = rows.repartition(8).mapInArrow(seen, "executor string, package string").distinct().collect()
    report = {
        "exported": done.messages,
        "in_lake": Lake(root).read(spark).count(),
        "audited": audit(spark, Database.from_url(url), Lake(root)).sentences(),
        "read": sorted(row.sequence_number for row in rows.select("sequence_number").collect()),
        "executors": sorted({row.executor for row in places}),
        "packages": [row.package for row in places],
    }
    spark.stop()
    print(json.dumps(report))
"""


@pytest.mark.nightly
def test_a_cluster_exports_audits_and_reads_with_the_drivers_package(
    cluster: Cluster, bare_python: Path, small_archive: Archive, tmp_path: Path
) -> None:
    for batch in range(1, 5):
        small_archive.seal(batch, [archived(number, body=b"x") for number in range(batch * 10, batch * 10 + 10)])

    done = subprocess.run(
        [sys.executable, "-c", dedent(PROGRAM), cluster.url, small_archive.url, tmp_path / "lake"],
        env=os.environ | {"PYSPARK_PYTHON": str(bare_python), "PYSPARK_SUBMIT_ARGS": SUBMIT},
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr + cluster.log()
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["exported"] == report["in_lake"] == 40
    assert report["read"] == list(range(10, 50))
    assert report["audited"].startswith("No message is lost or duplicated: 40 accepted")
    assert [Path(directory).relative_to(tmp_path / "cluster").parts[0] for directory in report["executors"]] == [
        "worker-0",
        "worker-1",
    ]
    assert all("peeklock_pipeline.zip" in package for package in report["packages"])


SUBMIT = (
    "--driver-memory 512m --executor-memory 512m --conf spark.driver.host=127.0.0.1 "
    "--conf spark.driver.bindAddress=127.0.0.1 --conf spark.sql.shuffle.partitions=2 pyspark-shell"
)
