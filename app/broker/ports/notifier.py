"""Who is told that something has happened."""

from collections.abc import Sequence
from typing import Protocol


class Notifier(Protocol):
    """Wake-ups for waiting receivers, in this process and in the others. Losing one is harmless."""

    def notify(self, queue_id: int, count: int = 1, passed_numbers: Sequence[int] = ()) -> None:
        """Wake up to `count` receivers of the queue, those that wait longest first, in this process and in others.

        `passed_numbers` are those of the messages that may stand where searches have been already, by sequence number: the
        searches of other processes hear of them also where all are woken here.
        """
        ...

    def schedule_changed(self) -> None:
        """Something may be due sooner than the schedule pass knows."""
        ...

    def queues_changed(self) -> None:
        """Other processes should forget what they remember of queues."""
        ...


class Counters(Protocol):
    """Where things that happened are counted for whoever watches."""

    def count(self, event: str, amount: int = 1) -> None:
        """`amount` more of this event (a word of the metrics guide)."""
        ...
