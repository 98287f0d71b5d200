"""The counters of what happened to messages: in total, and for each queue that exists, in a bounded number of series.

Numbers that processes share cannot be removed. So those of a queue are in a slot, which another queue gets after its deletion.
"""

from array import array
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping

from app.domain.settlement import Outcome
from app.runtime.shared_numbers import Labels, Numbers, Series, SharedNumbers

MAX_COUNTED_QUEUES = 2000
"""Queues with their own counters in a process: the first that it serves. Messages of other queues count in totals only."""

MESSAGE_EVENTS = "peeklock_message_events"
QUEUE_MESSAGE_EVENTS = "peeklock_queue_message_events"

PLACES = {event: place for place, event in enumerate(("sent", "delivered", *Outcome))}
"""The place of the count of each event in a series."""

QUEUE_ID = len(PLACES)
"""The place of the id of the queue that has the slot, 0 if none has it."""


class MessageCounters:
    """The counters of one process."""

    def __init__(self, numbers: SharedNumbers) -> None:
        self._numbers = numbers
        self._totals = numbers.of(MESSAGE_EVENTS, (), len(PLACES))
        self._by_queue: dict[int, Numbers] = {}
        self._free: list[Numbers] = []

    def count(self, queue_id: int, event: str, amount: int) -> None:
        """Add to the number of messages of a queue to which this has happened."""
        place = PLACES[event]
        self._totals[place] += amount
        of_queue = self._by_queue.get(queue_id) or self._take_slot(queue_id)
        if of_queue is not None:
            of_queue[place] += amount

    def free_deleted(self, existing: Container[int], newest: int) -> None:
        """Free the slots of queues that do not exist. A queue with a higher id than `newest` may have been created since."""
        for queue_id in [one for one in self._by_queue if one < newest and one not in existing]:
            slot = self._by_queue.pop(queue_id)
            slot[:] = array("d", bytes(slot.nbytes))
            self._free.append(slot)

    def _take_slot(self, queue_id: int) -> "Numbers | None":
        used = len(self._by_queue)
        if used >= MAX_COUNTED_QUEUES:
            return None
        slot = self._free.pop() if self._free else self._numbers.of(QUEUE_MESSAGE_EVENTS, (str(used),), len(PLACES) + 1)
        slot[QUEUE_ID] = queue_id
        self._by_queue[queue_id] = slot
        return slot


def events_in_total(series: Iterable[Series]) -> Mapping[Labels, float]:
    """Return what all processes have counted for all queues together, by event."""
    counts: defaultdict[Labels, float] = defaultdict(float)
    for one in series:
        if one.name == MESSAGE_EVENTS:
            for event, place in PLACES.items():
                counts[event,] += one.numbers[place]
    return counts


def events_by_queue(series: Iterable[Series], names: Mapping[int, str]) -> Mapping[Labels, float]:
    """Return what all processes have counted, by the name of the queue and the event. Queues without a name are left out."""
    counts: defaultdict[Labels, float] = defaultdict(float)
    for one in series:
        if one.name == QUEUE_MESSAGE_EVENTS and (name := names.get(int(one.numbers[QUEUE_ID]))) is not None:
            for event, place in PLACES.items():
                counts[name, event] += one.numbers[place]
    return dict(sorted(counts.items()))
