"""Numbers that a process counts, and that the other processes of its server read.

They are in memory that the processes share. So a count is one addition without a lock, every process reads it at once, and
it outlives a process that is killed.
"""

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple, TypeAlias
from uuid import uuid4

DIRECTORY_VARIABLE = "PEEKLOCK_SHARED_METRICS"
"""The environment variable in which the processes of a server get the directory of their numbers from their parent."""

SIZE = 4 << 20
"""Bytes for the numbers of one process: several times what all its series need. Unused ones take no memory."""

NUMBERS = ".numbers"
SERIES = ".series"

Labels: TypeAlias = tuple[str, ...]
Numbers: TypeAlias = "memoryview[float]"


class Series(NamedTuple):
    """Numbers that belong together: one, or the buckets of a histogram."""

    name: str
    labels: Labels
    numbers: Sequence[float]


class SharedNumbers:
    """The numbers of this process and, with a directory, those of all processes that have the same one.

    A process has two files there: one with its numbers, and one with a line of JSON for each series, in the same order.
    The first number is what the process does now, such as receives that wait: `end_process` sets it to 0.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._by_labels: dict[tuple[str, Labels], Numbers] = {}
        self._lines: int | None = None
        self._unwritten = b""
        if directory is None:
            memory = mmap(-1, SIZE)
        else:
            path = directory / f"{os.getpid()}-{uuid4().hex}"
            with path.with_suffix(NUMBERS).open("x+b") as file:
                file.truncate(SIZE)
                memory = mmap(file.fileno(), SIZE)
            # Open until the process ends, even if the directory is removed before.
            self._lines = os.open(path.with_suffix(SERIES), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._unused = memoryview(memory).cast("d")

    def of(self, name: str, labels: Labels = (), length: int = 1) -> Numbers:
        """Return the numbers of a series of this process, to be changed in place. Those of a new one are 0."""
        return self._by_labels.get((name, labels)) or self._new_series(name, labels, length)

    def read(self) -> Iterable[Series]:
        """Return the series of all processes."""
        if self._directory is None:
            own = [*self._by_labels.items()]
            return [Series(name, labels, numbers) for (name, labels), numbers in own]
        return [series for path in self._directory.glob(f"*{SERIES}") for series in _read(path)]

    def _new_series(self, name: str, labels: Labels, length: int) -> Numbers:
        numbers, self._unused = self._unused[:length], self._unused[length:]
        self._by_labels[name, labels] = numbers
        if self._lines is not None:
            self._unwritten += json.dumps((name, labels, length)).encode() + b"\n"
            # What a full disk does not take waits for the next series: a count must fail no request.
            with suppress(OSError):
                self._unwritten = self._unwritten[os.write(self._lines, self._unwritten) :]
        return numbers


def _read(path: Path) -> Iterable[Series]:
    *lines, _unfinished = path.read_bytes().split(b"\n")
    with path.with_suffix(NUMBERS).open("rb") as file:
        left = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ)).cast("d")
    for line in lines:
        name, labels, length = json.loads(line)
        yield Series(name, tuple(labels), left[:length])
        left = left[length:]


def end_process(directory: Path, process_id: int) -> None:
    """Set the first number of a process that has ended to 0. Its other numbers stay."""
    for path in directory.glob(f"{process_id}-*{NUMBERS}"):
        with path.open("r+b") as file:
            file.write(bytes(8))
