"""The durable log of a client: each request is recorded before it is sent and again when it is answered."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NO_ANSWER = 0
"""The status of a request without an answer; its effect is in doubt."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One request. `at` and `done` are seconds of the machine's monotonic clock, the same in all its processes."""

    verb: str
    at: float
    asked: dict[str, Any]
    done: float = float("inf")
    status: int = NO_ANSWER
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def is_acknowledged(self) -> bool:
        """Whether the client received an answer that it took effect."""
        return 200 <= self.status < 300

    @property
    def may_have_effect(self) -> bool:
        """Whether the client cannot rule out that it took effect; a refusal does."""
        return self.is_acknowledged or self.status == NO_ANSWER or self.status >= 500


class Journal:
    """The log of one client process. A line is on disk before its method returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._numbers = itertools.count()

    def record_request(self, verb: str, **asked: Any) -> int:
        """Record a request before it is sent, and return its number."""
        number = next(self._numbers)
        self._write({"call": number, "verb": verb, "at": time.monotonic(), "asked": asked})
        return number

    def record_answer(self, number: int, status: int, answer: dict[str, Any]) -> None:
        """Record the answer to a request."""
        self._write({"call": number, "done": time.monotonic(), "status": status, "answer": answer})

    def close(self) -> None:
        """Close the log."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def read(paths: Iterable[Path]) -> list[RecordedCall]:
    """The calls of these logs, in the order in which they were made. A client may have died in its last line."""
    return sorted(itertools.chain.from_iterable(map(_read, paths)), key=lambda call: call.at)


def _read(path: Path) -> list[RecordedCall]:
    requests: dict[int, dict[str, Any]] = {}
    results: dict[int, dict[str, Any]] = {}
    for line in map(json.loads, _complete_lines(path.read_text("utf-8").splitlines(keepends=True))):
        (requests if "verb" in line else results)[line.pop("call")] = line
    return [RecordedCall(**request, **results.get(number, {})) for number, request in requests.items()]


def _complete_lines(lines: Sequence[str]) -> Sequence[str]:
    return lines if not lines or lines[-1].endswith("\n") else lines[:-1]
