"""Explanations of queues in a few sentences."""

from typing import assert_never

from app.domain.plurals import count_of
from app.domain.queue import QueueCounts
from app.domain.queue_explanation import QueueExplanation, QueueReason, SendAcceptance
from app.wire.explanation_texts import NO_RECEIVER_WAITS, SOON, settlement_waits
from app.wire.times import to_wire


def queue_text(explanation: QueueExplanation) -> str:
    """Explain a queue."""
    return " ".join(
        [_reason_text(explanation), *_waiting_text(explanation), *_next_text(explanation), *_sends_text(explanation)]
    )


def _reason_text(explanation: QueueExplanation) -> str:
    counts = explanation.facts.counts
    available = f"{_messages(counts.available)} available"
    match explanation.reason:
        case QueueReason.QUEUE_PAUSED:
            return f"The queue has the status {explanation.settings.status}, so no message can be received."
        case QueueReason.EMPTY | QueueReason.SENDS_DISABLED | QueueReason.ALL_UNCOMMITTED:
            return _empty_text(counts)
        case QueueReason.RECEIVERS_WAITING:
            return f"{available}, and receivers wait on this server: they get them unless their filters do not match."
        case QueueReason.RECEIVERS_BUSY:
            return f"{available}, and receivers hold {counts.locked:,}. {NO_RECEIVER_WAITS}"
        case QueueReason.NO_RECEIVER:
            return f"{available}, and no receiver holds a message. {NO_RECEIVER_WAITS}"
        case QueueReason.ALL_LOCKED:
            return f"No message is available, and {_locks_text(explanation)}."
        case QueueReason.ALL_BLOCKED:
            return f"{_messages(counts.blocked)} blocked, and a background pass makes the first ones available {SOON}."
        case QueueReason.ALL_SCHEDULED:
            return f"No message is available or locked, and {_messages(counts.scheduled)} scheduled."
        case QueueReason.SET_ASIDE:
            return (
                f"{_messages(counts.deferred)} deferred and {counts.dead_lettered:,} dead-lettered. A receive must name the "
                "deferred ones; the others must be redriven, or received from the dead letters."
            )
        case _:
            assert_never(explanation.reason)


def _empty_text(counts: QueueCounts) -> str:
    if not counts.uncommitted:
        return "The queue is empty."
    return f"The queue is empty, and {count_of(counts.uncommitted, 'send')} to it must be committed first."


def _locks_text(explanation: QueueExplanation) -> str:
    held = f"{_messages(explanation.facts.counts.locked)} locked"
    if explanation.receivers:
        held += f" by {count_of(explanation.receivers, 'receiver')} with an id"
    if explanation.facts.counts.blocked:
        held += f" and {explanation.facts.counts.blocked:,} blocked behind messages of their groups"
    end = explanation.next_lock_end
    return held if end is None else f"{held}; the first lock ends at {to_wire(end)} at the latest"


def _waiting_text(explanation: QueueExplanation) -> list[str]:
    if not explanation.waiting:
        return []
    number = len(explanation.waiting)
    first = settlement_waits(explanation.waiting[0])
    if number == 1:
        return [f"The {first}."]
    return [f"{number:,} settlements wait for commits. The first {first}."]


def _next_text(explanation: QueueExplanation) -> list[str]:
    if explanation.next_deliverable_at is None or explanation.facts.counts.available:
        return []
    return [f"The next message can be received at {to_wire(explanation.next_deliverable_at)} at the latest."]


def _sends_text(explanation: QueueExplanation) -> list[str]:
    match explanation.sends:
        case SendAcceptance.ACCEPTED:
            return []
        case SendAcceptance.DISABLED:
            return [f"Sends are refused, because the status is {explanation.settings.status}."]
        case SendAcceptance.FULL:
            return ["Sends are refused, because the queue holds as many messages as its max_messages allows."]
        case _:
            assert_never(explanation.sends)


def _messages(number: int) -> str:
    return count_of(number, "message is", "messages are")
