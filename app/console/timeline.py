"""The history of a message in sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    Event.REDRIVEN: "It was redriven from the dead letters.",
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
    texts = {
        Outcome.COMPLETED: f"{subject} completed it.",
        Outcome.ABANDONED: f"{subject} abandoned it.",
        Outcome.DEAD_LETTERED: f"{subject} dead-lettered it.",
        Outcome.DEFERRED: f"{subject} deferred it.",
        Outcome.RECEIVED: f"{subject} received and deleted it.",
        Outcome.RELEASED: f"It was released unprocessed. The delivery to {receiver} is not counted.",
        Outcome.LOCK_EXPIRED: f"The lock of {receiver} expired.",
        Outcome.ENTITY_CHANGED: f"The lock of {receiver} was revoked.",
    }
    return texts.get(outcome, "The delivery ended.") if outcome else "The delivery ended."
