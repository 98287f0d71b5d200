"""CPU seconds and memory of processes, as the kernel counts them, children included."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from tests.servers import find_program

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
STARTED = 19
"""The place of the time of its start in a process's fields. With the pid it names one process."""


def cpu_seconds(roots: Iterable[int]) -> float:
    """User and system time of these processes and all below them, ended children included."""
    return sum(_cpu_of(pid) for pid in process_tree(roots))


class TreeCpu:
    """The CPU seconds of a process and of all seen below it, except for some of them and those below these.

    It looks every second, so that a process that ends without being waited for keeps what it cost. Spark's daemon
    ignores how its workers end, and they end after a minute without work.
    """

    def __init__(self, root: int, without: Iterable[int] = ()) -> None:
        """Count what they have cost since each began."""
        self._root, self._without = root, tuple(without)
        self._seen: dict[tuple[int, str], float] = {}

    def seconds(self) -> float:
        """Look, and return user and system time of all of them, their earlier time included."""
        for pid in process_tree([self._root], self._without):
            if fields := _stat(pid):
                self._seen[pid, fields[STARTED]] = sum(map(int, fields[11:13])) / TICKS
        return sum(self._seen.values())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look every second for the block."""
        ended = Event()

        def look() -> None:
            while not ended.wait(1):
                self.seconds()

        looking = Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()


def resident_mib(pid: int) -> float:
    """Resident memory of one process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * PAGE / (1 << 20)


def process_tree(roots: Iterable[int], without: Iterable[int] = ()) -> set[int]:
    """These processes and all below them, without some and those below these."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left_out = set[int](), set(without)
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found | left_out:
            found.add(pid)
            waiting += children.get(pid, ())
    return found


def describe() -> dict[str, str]:
    """The conditions of a run: the processor, Python and how it was built, the kernel and the servers."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": str(os.cpu_count()),
        "Python": python_build(sys.executable),
        "kernel": platform.release(),
        "PostgreSQL": _version("postgres"),
        "Redis": _version("redis-server"),
    }


def python_build(python: str) -> str:
    """The version of an interpreter, and whether it was configured with profile-guided optimisation."""
    question = "import platform, sysconfig; print(platform.python_version(), sysconfig.get_config_var('CONFIG_ARGS'))"
    told = subprocess.run([python, "-c", question], capture_output=True, text=True, check=True).stdout
    how = "with" if "--enable-optimizations" in told else "without"
    return f"{told.split()[0]} ({how} --enable-optimizations)"


def _version(program: str) -> str:
    """The version of a server, as its program prints it."""
    told = subprocess.run([find_program(program) or program, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"\d+(\.\d+)+", told.stdout)
    return found[0] if found else "unknown"


def _cpu_of(pid: int) -> float:
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / TICKS if fields else 0.0


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, the state first; None for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()
