"""The values that a consistent handler may read. The first processing captures them, and duplicates read them again (S4.15)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import msgspec

from peeklock_client.errors import PeeklockError

Entry = list[Any]


class ReplayDiffers(PeeklockError):
    """A duplicate read other values than the first processing of its message: the code of the handler has changed."""


class Captured(msgspec.Struct):
    """The metadata of a version: the version of its code, the queue of its message, and the values that it read, in order.

    A version that an older client has stored names no queue, and its identifiers do not follow from one.
    """

    logic: str = ""
    queue: str = ""
    read: list[Entry] = msgspec.field(default_factory=list[Entry])


class HandlerContext:
    """The time, random numbers, identifiers and environment variables of one processing. A duplicate gets the same values.

    `logic` is the version of the code that processed the message first. `is_duplicate` is whether the message was processed
    before.
    """

    def __init__(self, queue: str, message_id: str, logic: str, captured: Captured | None) -> None:
        self.message_id = message_id
        self.is_duplicate = captured is not None
        self.captured = captured or Captured(logic, queue)
        self.logic = self.captured.logic
        self._ids = 0
        self._replayed = 0

    def new_id(self) -> str:
        """Return a new identifier. It follows from the queue, the id of the message and the number of the call (S4.14)."""
        self._ids += 1
        origin = f"{self.captured.queue}/{self.message_id}" if self.captured.queue else self.message_id
        return str(uuid5(NAMESPACE_OID, f"{origin}/{self._ids}"))

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.fromisoformat(self._read("now", lambda: datetime.now(UTC).isoformat()))

    def random(self) -> float:
        """Return a random number from 0 to below 1."""
        return self._read("random", random.random)

    def randint(self, low: int, high: int) -> int:
        """Return a random integer from `low` to `high`, both included."""
        return self._read("randint", lambda: random.randint(low, high))

    def environ(self, name: str, default: str | None = None) -> str | None:
        """Return an environment variable."""
        return self._read(f"environ {name}", lambda: os.environ.get(name, default))

    def _read(self, kind: str, read: Callable[[], Any]) -> Any:
        """Return the next captured value of a duplicate; read and capture it for any other message."""
        if not self.is_duplicate:
            self.captured.read.append([kind, read()])
            return self.captured.read[-1][1]
        if self._replayed == len(self.captured.read):
            raise ReplayDiffers(f"The first processing of message {self.message_id} did not read {kind}.")
        captured_kind, value = self.captured.read[self._replayed]
        if captured_kind != kind:
            raise ReplayDiffers(f"The first processing of message {self.message_id} read {captured_kind}, not {kind}.")
        self._replayed += 1
        return value
