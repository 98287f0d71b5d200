"""Runs several commands at the same time, and reports the output, result and cost of each."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from developing.paths import ENVIRONMENT, ROOT

FAILURE = re.compile("FAILED |ERROR |failed: ")
"""The start of the line for a failed test in pytest's summary, or for the failed checks."""


class RunningCommand:
    """One of several commands that run at the same time: its output, result and cost."""

    def __init__(self, name: str, command: Iterable[str | Path]) -> None:
        self.name = name
        self.lines: list[str] = []
        self.code = -1
        self.seconds = self.processor_seconds = 0.0
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [str(command_run) for command_run in command],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait(self) -> None:
        """Return once the command has ended and `lines` has its whole output."""
        self._listener.join()

    def report(self) -> str:
        """Return the result in one line, followed by the failed tests or checks."""
        end = "passed" if self.code == 0 else f"FAILED with code {self.code}"
        cost = f"{self.seconds:.0f} s, {self.processor_seconds:.0f} s of processor time"
        return "".join([f"---- {self.name}: {end} ({cost})\n", *filter(FAILURE.match, self.lines)])

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            self.lines.extend(output)
        _, ended, usage = os.wait4(self._process.pid, 0)
        self.code = self._process.returncode = os.waitstatus_to_exitcode(ended)
        self.seconds = time.monotonic() - self._started
        self.processor_seconds = usage.ru_utime + usage.ru_stime


def run_parallel(commands: Mapping[str, Iterable[str | Path]]) -> tuple[int, float]:
    """Run commands at the same time. Print the output of each, one after the other, and then all results.

    Returns the first exit code that is not 0, else 0, and the seconds of processor time of all.
    """
    command_runs = [RunningCommand(name, command) for name, command in commands.items()]
    for command_run in command_runs:
        command_run.wait()
        print(f"---- {command_run.name}\n{''.join(command_run.lines)}", flush=True)
    print("".join(command_run.report() for command_run in command_runs), end="", flush=True)
    code = next((command_run.code for command_run in command_runs if command_run.code != 0), 0)
    return code, sum(command_run.processor_seconds for command_run in command_runs)
