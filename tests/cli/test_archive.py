"""`peeklock archive ...` at a real server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Terminal
from tests.service import Service

GLANCES = 100  # each of which takes a command's time


def test_sealed_batches_are_listed(serve: Callable[..., Service], tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, serve(seal_interval_seconds=0.1).url)
    terminal.see("send", "ended", "--lines", stdin=b"1\n2\n")
    terminal.see("receive", "ended", "--max", "2", "--then", "complete")
    listed = next(filter(None, (terminal.read("archive", "list") for _ in range(GLANCES))))
    assert sum(batch["row_count"] for batch in listed) == 2
    assert "row_count" in terminal.see("archive", "list")
    assert terminal.read("archive", "list", "--after", str(listed[-1]["number"])) == []
