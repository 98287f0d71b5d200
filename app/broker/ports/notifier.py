"""Notifications to receivers, background loops and other processes, and the counters of events."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from app.domain.message import Message
from app.domain.settlement import Settlement


class Notifier(Protocol):
    """Notifies this process and the others. A lost notification is harmless."""

    def notify(self, queue_id: int, count: int = 1, passed_numbers: Sequence[int] = ()) -> None:
        """Wake up to `count` receivers of the queue, longest-waiting first, in this process and in others.

        `passed_numbers` are the sequence numbers of messages that searches may already have passed. The searches of
        other processes are notified of them even if all wake-ups go to receivers here.
        """
        ...

    def schedule_changed(self) -> None:
        """Wake the schedule loop: a message may be due sooner than it expects."""
        ...

    def queues_changed(self) -> None:
        """Tell other processes to clear their queue caches."""
        ...


class Counters(Protocol):
    """Counts events for the metrics, and takes times for the console."""

    def count(self, event: str, amount: int = 1) -> None:
        """Add `amount` to the counter of this event (a name from docs/reference/metrics.md)."""
        ...

    def count_messages(self, queue_id: int, event: str, amount: int = 1) -> None:
        """Add `amount` to the number of messages of a queue to which this has happened (a name from docs/reference/metrics.md)."""
        ...

    def time_deliveries(self, messages: Sequence[Message]) -> None:
        """Take the time that these messages have waited. By default nothing does."""

    def time_settlements(self, settlements: Iterable[Settlement]) -> None:
        """Take the time between the deliveries that have ended and their ends. By default nothing does."""
