"""Explanations of messages and queues in responses."""

import msgspec

from app.domain.explanation import EndedMessage, MessageExplanation, MessageReason
from app.domain.message import MessageState
from app.domain.queue import QueueStatus
from app.domain.queue_explanation import QueueExplanation, QueueReason, SendAcceptance
from app.domain.settlement import Outcome
from app.domain.transaction import WaitingSettlement
from app.wire.explanation_texts import end_text, message_text
from app.wire.field_types import STATE_NAMES, Timestamp, ViewedState
from app.wire.queue_explanation_texts import queue_text
from app.wire.queues import MessageCounts, message_counts
from app.wire.settlements import OUTCOME_NAMES, SettledOutcome
from app.wire.times import maybe_to_wire, to_wire


class WaitingSettlementView(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A settlement that waits for the commit of an open transaction."""

    outcome: SettledOutcome
    expires_at: Timestamp
    transaction_id: str | None = None


class MessageExplanationView(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Why a message is not delivered, or how it ended; fields that do not apply are omitted."""

    state: ViewedState
    reason: MessageReason
    text: str
    holder: str | None = None
    locked_until: Timestamp | None = None
    due_at: Timestamp | None = None
    expires_at: Timestamp | None = None
    deliverable_at: Timestamp | None = None
    behind: int | None = None
    messages_ahead: int | None = None
    waiting_settlement: WaitingSettlementView | None = None
    receivers_waiting: bool | None = None
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    dead_lettered_at: Timestamp | None = None
    outcome: Outcome | None = None
    settled_at: Timestamp | None = None
    receiver_id: str | None = None


class QueueExplanationView(msgspec.Struct, kw_only=True):
    """Why a queue is stalled, or that it is not."""

    reason: QueueReason
    text: str
    status: QueueStatus
    sends: SendAcceptance
    counts: MessageCounts
    receivers_waiting: bool
    receivers_holding_locks: int
    waiting_settlements: int
    next_waiting_settlement: WaitingSettlementView | None
    next_lock_ends_at: Timestamp | None
    next_due_at: Timestamp | None
    next_deliverable_at: Timestamp | None


def message_explanation_view(explained: MessageExplanation | EndedMessage) -> MessageExplanationView:
    """Build the JSON of the explanation of a message."""
    return _end_view(explained) if isinstance(explained, EndedMessage) else _message_view(explained)


def _end_view(end: EndedMessage) -> MessageExplanationView:
    return MessageExplanationView(
        state="ended",
        reason=MessageReason.ENDED,
        text=end_text(end),
        outcome=end.outcome,
        settled_at=to_wire(end.settled_at),
        receiver_id=end.receiver_id,
    )


def _message_view(explanation: MessageExplanation) -> MessageExplanationView:
    facts = explanation.facts
    is_locked, is_scheduled = facts.state is MessageState.LOCKED, facts.state is MessageState.SCHEDULED
    return MessageExplanationView(
        state=STATE_NAMES[facts.state],
        reason=explanation.reason,
        text=message_text(explanation),
        holder=facts.receiver_id if is_locked else None,
        locked_until=maybe_to_wire(explanation.locked_until),
        due_at=to_wire(facts.available_at) if is_scheduled else None,
        expires_at=maybe_to_wire(facts.expires_at),
        deliverable_at=maybe_to_wire(explanation.deliverable_at),
        behind=None if explanation.behind is None else explanation.behind.sequence_number,
        messages_ahead=explanation.messages_ahead,
        waiting_settlement=_waiting_view(explanation.waiting),
        receivers_waiting=explanation.receivers_waiting,
        dead_letter_reason=facts.dead_letter_reason,
        dead_letter_description=facts.dead_letter_description,
        dead_lettered_at=maybe_to_wire(facts.dead_lettered_at),
    )


def _waiting_view(waiting: WaitingSettlement | None) -> WaitingSettlementView | None:
    if waiting is None:
        return None
    return WaitingSettlementView(
        outcome=OUTCOME_NAMES[waiting.outcome],
        expires_at=to_wire(waiting.expires_at),
        transaction_id=waiting.transaction_id,
    )


def queue_explanation_view(explanation: QueueExplanation) -> QueueExplanationView:
    """Build the JSON of the explanation of a queue."""
    return QueueExplanationView(
        reason=explanation.reason,
        text=queue_text(explanation),
        status=explanation.settings.status,
        sends=explanation.sends,
        counts=message_counts(explanation.facts.counts),
        receivers_waiting=explanation.facts.receivers_waiting,
        receivers_holding_locks=explanation.receivers,
        waiting_settlements=len(explanation.waiting),
        next_waiting_settlement=_waiting_view(next(iter(explanation.waiting), None)),
        next_lock_ends_at=maybe_to_wire(explanation.next_lock_end),
        next_due_at=maybe_to_wire(explanation.facts.next_due_at),
        next_deliverable_at=maybe_to_wire(explanation.next_deliverable_at),
    )
