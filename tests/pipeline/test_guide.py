"""The demo works, and so do every block of docs/pipeline.md and the notebook with the demo's traffic."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable
from matplotlib import pyplot
from peeklock_pipeline import cli
from peeklock_pipeline.lake import Lake
from pyspark.sql import SparkSession

from tests.peeklock_process import PROGRAM
from tests.pipeline.object_store import ObjectStore

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/pipeline.md").read_text()
NOTEBOOK = ROOT / "pipeline/notebooks/messages.ipynb"
BLOCK = re.compile(r"^```(sh|python|text|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTED_DIRECTORY = "/srv"
SCALE = "0.1"
SENT_AGAIN = """
    queue = 'emails' and delivery_count > 2 or queue = 'invoices' and outcome = 'expired' or queue = 'thumbnails'
"""
"""The messages that the guide's replay and its two writes send."""

PLAIN_TERMINAL = {"COLUMNS": "400", "TERM": "dumb"}

NUMBER = re.compile(r"\d[\d:., -]*\d|\d")


def demo() -> Any:
    """The demo as a module."""
    spec = importlib.util.spec_from_file_location("pipeline_demo", ROOT / "pipeline/demo.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class GuideRunner:
    """Runs the guide's blocks against the demo's server, with a directory in place of /srv."""

    def __init__(self, directory: Path, url: str, database: str, s3_store: ObjectStore) -> None:
        self.directory = directory
        self.environment = {"PEEKLOCK_URL": url, "PEEKLOCK_DATABASE_URL": database, **s3_store.options}
        self.names: dict[str, Any] = {"URL": url, "DATABASE_URL": database}

    def run_block(self, kind: str, block: str) -> str:
        """Run a block, and return its output with /srv in place of the directory."""
        block = block.replace(DOCUMENTED_DIRECTORY, str(self.directory))
        output = self._python(block) if kind == "python" else "".join(map(self._command, block.splitlines()))
        return output.replace(str(self.directory), DOCUMENTED_DIRECTORY)

    def count(self, queue: str) -> int:
        """Return the number of messages of a queue."""
        return int(httpx.get(f"{self.names['URL']}/v1/queues/{queue}", timeout=60).json()["counts"]["available"])

    def _python(self, block: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(block, "docs/pipeline.md", "exec"), self.names)
        return output.getvalue()

    def _command(self, line: str) -> str:
        program, *words = shlex.split(line)
        return self._job(words) if program == "peeklock-pipeline" else self._peeklock(words)

    def _job(self, words: list[str]) -> str:
        """Run a job in this process, where Spark has started."""
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as output:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as end:
                cli.main(words)
        assert end.value.code in (0, None), words
        return output.getvalue()

    def _peeklock(self, words: list[str]) -> str:
        subprocess.run([PROGRAM, *words], env=os.environ | self.environment, check=True, stdout=subprocess.DEVNULL)
        return ""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """The demo, its directory and its output."""

    demo: Any
    directory: Path
    output: str


@pytest.fixture(scope="module")
def demo_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    """The demo, run where Spark has started already."""
    show, directory = demo(), tmp_path_factory.mktemp("shown") / "demo"
    with contextlib.redirect_stdout(io.StringIO()) as output:
        show.main(["--out", str(directory), "--scale", SCALE])
    return DemoRun(show, directory, output.getvalue())


@pytest.fixture
def guide_runner(demo_run: DemoRun, tmp_path: Path, s3_store: ObjectStore) -> Iterator[GuideRunner]:
    """A reader of the guide, once the demo is over and its server has been started again."""
    shutil.copy(demo_run.directory / "sent.jsonl", tmp_path)
    (tmp_path / "metrics").mkdir()
    with demo_run.demo.server(demo_run.directory / "server") as url:
        yield GuideRunner(tmp_path, url, f"sqlite:///{demo_run.directory}/server/peeklock.db", s3_store)


@pytest.mark.full
def test_the_demo_makes_a_lake_an_audit_and_a_report(demo_run: DemoRun) -> None:
    sent = [json.loads(line)["message_id"] for line in (demo_run.directory / "sent.jsonl").read_text().splitlines()]
    assert sorted(kept(demo_run.directory / "lake")) == sorted(sent)
    assert f"No message is lost or duplicated: {len(sent)} accepted" in demo_run.output
    assert "<html" in (demo_run.directory / "report.html").read_text()


KEEPING = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import demo

with demo.server(Path(sys.argv[2])) as url:
    demo.keep_server(url, "sqlite:////srv/peeklock.db", Path("/srv/lake"))
"""
"""The end of a demo with `--keep`, without its traffic and jobs."""


def test_a_kept_server_takes_the_commands_of_the_guide_until_ctrl_c(tmp_path: Path) -> None:
    program = [sys.executable, "-c", KEEPING, ROOT / "pipeline", tmp_path]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=os.environ | PLAIN_TERMINAL) as process:
        assert process.stdout is not None
        try:
            output = [*takewhile(lambda line: line != "Ctrl-C stops the server.\n", process.stdout)]
            variables, *commands = [line for line in output if line.startswith(("export", "peeklock"))]
            given = dict(word.split("=", 1) for word in shlex.split(variables)[1:])
            assert httpx.get(f"{given['PEEKLOCK_URL']}/readyz", timeout=60).is_success
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert given["PEEKLOCK_DATABASE_URL"] == "sqlite:////srv/peeklock.db"
    assert [command.split()[1] for command in commands] == ["queue", "replay", "replay", "trim"]
    assert [command for command in commands if command not in GUIDE.splitlines(keepends=True)] == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{given['PEEKLOCK_URL']}/livez")


@pytest.mark.full
@pytest.mark.nightly
def test_the_guide_is_true(guide_runner: GuideRunner, spark: SparkSession) -> None:
    output = ""
    for match in BLOCK.finditer(GUIDE):
        kind, block = match[1], match[2]
        if kind == "text":
            assert shape(output) == shape(block), output
        elif kind != "console":
            output = guide_runner.run_block(kind, block)
    assert (guide_runner.directory / "report.html").stat().st_size > 10_000
    archive = Lake(guide_runner.directory / "lake").read(spark)
    assert guide_runner.count("again") == archive.where(SENT_AGAIN).count() > 0
    of_customers = sum(guide_runner.names["counted"]["messages"].to_pylist())
    assert of_customers == archive.where("group_id IS NOT NULL").count() > 0


@pytest.mark.full
def test_the_notebook_runs_over_the_lake_of_the_demo(demo_run: DemoRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEEKLOCK_LAKE", str(demo_run.directory / "lake"))
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    pyplot.switch_backend("agg")
    pyplot.close("all")
    for cell in code:
        exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
    drawn = [len(pyplot.figure(number).axes) for number in pyplot.get_fignums()]
    pyplot.close("all")
    assert drawn == [1, 1, 1]
    assert set(names["samples"]) == {"emails", "invoices", "orders", "thumbnails"}
    assert [cell["outputs"] for cell in code] == [[]] * len(code)


def kept(lake: Path) -> list[str]:
    """The ids of all messages of a lake."""
    tables = [DeltaTable(lake / name).to_pyarrow_table(columns=["message_id"]) for name in ("archive", "messages")]
    return [str(name) for table in tables for name in table["message_id"].to_pylist()]


def shape(output: str) -> str:
    """Return a text with every number replaced by 0."""
    return NUMBER.sub("0", output).strip()
