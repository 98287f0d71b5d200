"""The counts of a worker."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class WorkerReport:
    """Counts of messages since the start of a worker.

    `completed`, `abandoned`, `dead_lettered` and `deferred` count settlements. `lock_lost` messages lost their lock before.
    `refused` messages stay locked until their locks end, because the server refused their settlement for another reason.
    `in_doubt` messages may be settled: the answers to their settlements were lost. `handed_back` messages were returned to
    their queue without counting a failure: by a stop, by a handler that released them, or after the answer to their receive
    was lost. `failed` counts exceptions of handlers and of the callbacks of their receives. A message whose callback has
    raised stays locked until its lock ends, and no other number counts it.
    """

    received: int = 0
    completed: int = 0
    abandoned: int = 0
    dead_lettered: int = 0
    deferred: int = 0
    lock_lost: int = 0
    refused: int = 0
    in_doubt: int = 0
    handed_back: int = 0
    failed: int = 0

    def add(self, other: WorkerReport) -> None:
        """Add the counts of another report."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self) -> str:
        return ", ".join(f"{getattr(self, field.name)} {field.name}" for field in fields(self))
