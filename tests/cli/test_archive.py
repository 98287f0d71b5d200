"""`peeklock archive ...` at a real server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import CommandLine
from tests.peeklock_process import PeeklockProcess

POLLS = 100  # each takes the time of a command


def test_sealed_batches_are_listed(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> None:
    terminal = CommandLine(tmp_path, serve(seal_interval_seconds=0.1).url)
    terminal.run_ok("send", "ended", "--lines", stdin=b"1\n2\n")
    terminal.run_ok("receive", "ended", "--max", "2", "--then", "complete")
    listed = next(filter(None, (terminal.read_json("archive", "list") for _ in range(POLLS))))
    assert sum(batch["row_count"] for batch in listed) == 2
    assert "row_count" in terminal.run_ok("archive", "list")
    assert terminal.read_json("archive", "list", "--after", str(listed[-1]["number"])) == []
