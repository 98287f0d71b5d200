"""Long work shows how far it is to somebody who looks, and nothing to a program that reads."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal
from tests.servers import PATIENCE
from tests.service import PROGRAM, environment

CHECKOUT = Path(__file__).parents[2]
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def watched(terminal: Terminal, *arguments: str, stdin: bytes = b"") -> tuple[str, str]:
    """What a command prints, and what it shows on a terminal meanwhile."""
    ours, theirs = pty.openpty()
    command = subprocess.Popen(
        [PROGRAM, *arguments],
        cwd=terminal.directory,
        env=environment(url=terminal.url) | {"TERM": "xterm", "COLUMNS": "100"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    printed, _ = command.communicate(stdin, timeout=PATIENCE)
    shown = b""
    with suppress(OSError):  # how the end of a terminal reads
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert command.returncode == 0, shown
    return printed.decode(), shown.decode()


def test_lines_are_counted_while_they_are_sent(terminal: Terminal) -> None:
    file = terminal.directory / "lines.txt"
    file.write_text("\n".join(f"line {number}" for number in range(1001)))
    printed, shown = watched(terminal, "send", "counted", "--lines", "--file", str(file))
    assert printed == "sent 1001\n"
    assert "1001/1001" in STYLE.sub("", shown)


@pytest.mark.parametrize(("command", "word"), [(("queue", "purge"), "removed"), (("dead-letter", "redrive"), "moved")])
def test_purge_and_redrive_are_counted(terminal: Terminal, command: tuple[str, ...], word: str) -> None:
    queue = f"counted-{word}"
    terminal.see("send", queue, "--lines", stdin=b"one\ntwo\nthree")
    terminal.see("receive", queue, "--max", "3", "--then", "dead-letter")
    printed, shown = watched(terminal, *command, queue, "--limit", "3")
    assert printed == f"3 {word}\n"
    assert f"{word}" in shown
    assert "3/3" in STYLE.sub("", shown)


def test_nobody_looks_where_there_is_no_terminal(terminal: Terminal) -> None:
    done = terminal.type("send", "quiet", "--lines", stdin=b"one\ntwo")
    assert (done.returncode, done.stdout, done.stderr) == (0, "sent 2\n", "")


def test_without_the_source_tree_there_is_no_benchmark(tmp_path: Path) -> None:
    """The program as it is installed from a wheel: its packages, and nothing of the tree around them."""
    shutil.copytree(CHECKOUT / "app", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from app.cli import app; app(prog_name='peeklock')"
    done = subprocess.run(
        [sys.executable, "-c", start, str(tmp_path), "bench", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "python3 dev.py bench" in done.stderr
