"""Histories: what happened to a message, one event for each transition."""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from app.domain.instant import Instant
from app.domain.message import MessageState
from app.domain.settlement import Outcome


class Event(StrEnum):
    """What happened to a message.

    - `sent`: it was stored.
    - `restored`: it was stored as a copy of a message that had been purged or cancelled.
    - `due`: the due time of a scheduled message came.
    - `admitted`: it was blocked and became available, because its group had room again or lost its limit.
    - `delivered`: a receiver got it under lock.
    - `renewed`: the lock was extended in the database. Renewals in the lock store are not recorded.
    - `settled`: its receiver ended the delivery. `outcome` says how.
    - `released`: the delivery ended without a result. `outcome` says why.
    - `edited`: its due time, priority or properties were changed.
    - `redriven`: it became available with counts of 0: after it was dead-lettered, or because a task moved it here.
    - `expired`: its time to live ended.
    - `purged`: an administrator removed it with others.
    - `cancelled`: an administrator removed this message.
    """

    SENT = "sent"
    RESTORED = "restored"
    DUE = "due"
    ADMITTED = "admitted"
    DELIVERED = "delivered"
    RENEWED = "renewed"
    SETTLED = "settled"
    RELEASED = "released"
    EDITED = "edited"
    REDRIVEN = "redriven"
    EXPIRED = "expired"
    PURGED = "purged"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class EventCount:
    """How often an event with this outcome has happened within the minute that begins at `minute`."""

    minute: Instant
    event: Event
    outcome: Outcome | None
    count: int


@dataclass(frozen=True, slots=True)
class MessageEvent:
    """One event in the history of a message, in order of `number`.

    `state` is the state after it, None if the message has left its queue. `receiver_id` and `delivery_count` are those of
    the delivery that it began, extended or ended.
    """

    number: int
    at: Instant
    event: Event
    state: MessageState | None
    outcome: Outcome | None
    receiver_id: str | None
    reason: str | None
    delivery_count: int | None


def event_of(outcome: Outcome) -> Event:
    """Return the event by which a delivery or a message ended with this outcome."""
    match outcome:
        case Outcome.COMPLETED | Outcome.ABANDONED | Outcome.DEAD_LETTERED | Outcome.DEFERRED | Outcome.RECEIVED:
            return Event.SETTLED
        case Outcome.RELEASED | Outcome.LOCK_EXPIRED | Outcome.ENTITY_CHANGED:
            return Event.RELEASED
        case Outcome.RECOVERED:
            return Event.DELIVERED
        case Outcome.EXPIRED:
            return Event.EXPIRED
        case Outcome.PURGED:
            return Event.PURGED
        case Outcome.CANCELLED | Outcome.WITHDRAWN:
            return Event.CANCELLED
        case _:
            assert_never(outcome)
