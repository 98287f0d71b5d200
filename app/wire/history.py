"""Histories of messages in responses."""

from collections.abc import Sequence

import msgspec

from app.domain.history import Event, MessageEvent
from app.domain.settlement import Outcome
from app.wire.field_types import STATE_NAMES, StateName, Timestamp
from app.wire.times import to_wire

MAX_HISTORY_PAGE_BYTES = 2 << 20
"""Bytes of a page: 1000 events, each with two texts of 128 characters, of up to 6 bytes of JSON each."""


class MessageEventView(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What happened to a message once; fields that do not apply are omitted."""

    at: Timestamp
    event: Event
    state: StateName | None = None
    outcome: Outcome | None = None
    receiver_id: str | None = None
    delivery_count: int | None = None
    reason: str | None = None


class HistoryPage(msgspec.Struct):
    """What happened to a message, in order; `next_cursor` is null on the last page."""

    items: list[MessageEventView]
    next_cursor: str | None


def history_page(events: Sequence[MessageEvent], next_after: int | None) -> HistoryPage:
    """Build the JSON of a page of events."""
    return HistoryPage([_event_view(event) for event in events], None if next_after is None else str(next_after))


def _event_view(event: MessageEvent) -> MessageEventView:
    return MessageEventView(
        at=to_wire(event.at),
        event=event.event,
        state=None if event.state is None else STATE_NAMES[event.state],
        outcome=event.outcome,
        receiver_id=event.receiver_id,
        delivery_count=event.delivery_count,
        reason=event.reason,
    )
