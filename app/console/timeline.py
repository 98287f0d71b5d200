"""The history of a message in sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from app.domain.history import Event, MessageEvent
from app.domain.instant import Instant
from app.domain.settlement import Outcome

MAX_EVENTS = 200
"""Events of a page."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """What happened, when, how long after the entry before it, and the state and reason it left behind."""

    at: Instant
    since: Instant | None
    text: str
    state: str | None
    reason: str | None


def timeline(events: Sequence[MessageEvent]) -> list[TimelineEntry]:
    """Return the entries of events, in order."""
    entries: list[TimelineEntry] = []
    for event in events:
        since = max(event.at - entries[-1].at, 0) if entries else None
        state = event.state.label if event.state else None
        entries.append(TimelineEntry(event.at, since, event_text(event), state, event.reason))
    return entries


TEXTS: Mapping[Event, str] = {
    Event.SENT: "It was sent.",
    Event.RESTORED: "It was restored from the archive.",
    Event.DUE: "Its due time came.",
    Event.ADMITTED: "Its group had room for it.",
    Event.EDITED: "Its due time, priority or properties were edited.",
    Event.REDRIVEN: "It became available again with counts of 0: by a redrive or a move, or as a forwarded dead letter.",
    Event.EXPIRED: "Its time to live ended.",
    Event.PURGED: "It was purged.",
    Event.CANCELLED: "It was cancelled.",
}
"""The events that no receiver takes part in."""


def event_text(event: MessageEvent) -> str:
    """Say what happened in a sentence."""
    receiver = event.receiver_id or "a receiver"
    if event.event is Event.DELIVERED:
        count = f", delivery {event.delivery_count}" if event.delivery_count else ""
        return f"It was delivered to {receiver}{count}."
    if event.event is Event.RENEWED:
        return f"The lock of {receiver} was renewed."
    if event.event in (Event.SETTLED, Event.RELEASED):
        return _end_text(event.outcome, receiver)
    return TEXTS[event.event]


def _end_text(outcome: Outcome | None, receiver: str) -> str:
    """Say how a delivery ended."""
    subject = "A receiver" if receiver == "a receiver" else receiver
    match outcome:
        case Outcome.COMPLETED:
            return f"{subject} completed it."
        case Outcome.ABANDONED:
            return f"{subject} abandoned it."
        case Outcome.DEAD_LETTERED:
            return f"{subject} dead-lettered it."
        case Outcome.DEFERRED:
            return f"{subject} deferred it."
        case Outcome.RECEIVED:
            return f"{subject} received and deleted it."
        case Outcome.RELEASED:
            return f"It was released unprocessed. The delivery to {receiver} is not counted."
        case Outcome.LOCK_EXPIRED:
            return f"The lock of {receiver} expired."
        case Outcome.ENTITY_CHANGED:
            return f"The lock of {receiver} was revoked."
        case None | Outcome.RECOVERED | Outcome.EXPIRED | Outcome.PURGED | Outcome.CANCELLED | Outcome.WITHDRAWN:
            return "The delivery ended."
        case _:
            assert_never(outcome)
