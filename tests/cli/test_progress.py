"""Long commands show their progress on a terminal, and print nothing of it elsewhere."""

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

from tests.cli.conftest import CommandLine
from tests.peeklock_process import PROGRAM, environment
from tests.servers import TIMEOUT_SECONDS

CHECKOUT = Path(__file__).parents[2]
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run_in_terminal(command_line: CommandLine, *arguments: str, stdin: bytes = b"") -> tuple[str, str]:
    """Run a command, and return its output and what it showed on a terminal."""
    ours, theirs = pty.openpty()
    command = subprocess.Popen(
        [PROGRAM, *arguments],
        cwd=command_line.directory,
        env=environment(url=command_line.url) | {"TERM": "xterm", "COLUMNS": "100"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    printed, _ = command.communicate(stdin, timeout=TIMEOUT_SECONDS)
    shown = b""
    with suppress(OSError):  # the end of a terminal raises it
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert command.returncode == 0, shown
    return printed.decode(), shown.decode()


def test_lines_are_counted_while_they_are_sent(command_line: CommandLine) -> None:
    file = command_line.directory / "lines.txt"
    file.write_text("\n".join(f"line {number}" for number in range(1001)))
    printed, shown = run_in_terminal(command_line, "send", "counted", "--lines", "--file", str(file))
    assert printed == "sent 1001\n"
    assert "1001/1001" in STYLE.sub("", shown)


@pytest.mark.parametrize(
    ("command", "word"), [(("queue", "purge", "--yes"), "removed"), (("dead-letter", "redrive"), "moved")]
)
def test_purge_and_redrive_are_counted(command_line: CommandLine, command: tuple[str, ...], word: str) -> None:
    queue = f"counted-{word}"
    command_line.run_ok("send", queue, "--lines", stdin=b"one\ntwo\nthree")
    command_line.run_ok("receive", queue, "--max", "3", "--then", "dead-letter")
    printed, shown = run_in_terminal(command_line, *command, queue, "--limit", "3")
    assert printed == f"3 {word}\n"
    assert f"{word}" in shown
    assert "3/3" in STYLE.sub("", shown)


def test_without_a_terminal_no_progress_is_printed(command_line: CommandLine) -> None:
    done = command_line.run("send", "quiet", "--lines", stdin=b"one\ntwo")
    assert (done.returncode, done.stdout, done.stderr) == (0, "sent 2\n", "")


def test_without_the_source_tree_the_benchmark_is_refused(tmp_path: Path) -> None:
    """The program as installed from a wheel: only its packages, without the source tree."""
    shutil.copytree(CHECKOUT / "app", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from app.cli import app; app(prog_name='peeklock')"
    done = subprocess.run(
        [sys.executable, "-c", start, str(tmp_path), "bench", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "python3 dev.py bench" in done.stderr
