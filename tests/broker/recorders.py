"""Recorders of what a broker sends to the other processes and the lock store."""

from collections.abc import Sequence
from typing import Any

from app.domain.settlement import LockToken


class RecordingNotifier:
    """Records notifications to the other processes."""

    def __init__(self) -> None:
        self.notified: list[tuple[int, int]] = []
        self.passed_numbers: list[int] = []
        self.changes_of_queues = 0
        self.changes_of_schedule = 0

    def notify(self, queue_id: int, count: int = 1, passed_numbers: Sequence[int] = ()) -> None:
        self.notified.append((queue_id, count))
        self.passed_numbers += passed_numbers

    def schedule_changed(self) -> None:
        self.changes_of_schedule += 1

    def queues_changed(self) -> None:
        self.changes_of_queues += 1


class RecordingLockStore:
    """A lock store that records which lock records are deleted."""

    def __init__(self, locks: Any) -> None:
        self._locks = locks
        self.dropped: list[tuple[LockToken, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locks, name)

    async def delete_records(self, ended: Sequence[tuple[LockToken, int]]) -> None:
        self.dropped += ended
        await self._locks.delete_records(ended)
