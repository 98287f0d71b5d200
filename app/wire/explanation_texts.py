"""Explanations in one or two sentences."""

from typing import assert_never

from app.domain.explanation import MAX_MESSAGES_AHEAD, EndedMessage, MessageExplanation, MessageFacts, MessageReason
from app.domain.message import MessageState
from app.domain.plurals import count_of
from app.domain.queue import QueueStatus
from app.domain.settlement import Outcome
from app.domain.transaction import WaitingSettlement
from app.wire.times import to_wire

RECEIVERS_WAIT = "A receiver waits on this server and gets the message unless its filter does not match."
NO_RECEIVER_WAITS = "No receiver waits on this server."
SOON = "within about a second"


def message_text(explanation: MessageExplanation) -> str:
    """Explain a message in its queue."""
    sentences = [_reason_text(explanation, explanation.facts)]
    if explanation.facts.is_offered and explanation.facts.expires_at is not None:
        sentences.append(f"Its sender waits for the settlement, until {to_wire(explanation.facts.expires_at)}.")
    elif explanation.expires_first and explanation.facts.expires_at is not None:
        sentences.append(f"Its time to live ends before that, at {to_wire(explanation.facts.expires_at)}.")
    if explanation.waits_for_group:
        sentences.append(f"Then it may be blocked behind other messages of its group {explanation.facts.group_id}.")
    if explanation.queue_status in (QueueStatus.RECEIVE_DISABLED, QueueStatus.DISABLED):
        sentences.append(f"The queue has the status {explanation.queue_status}, so no message can be received.")
    return " ".join(sentences)


def end_text(end: EndedMessage) -> str:
    """Explain how a message ended."""
    at = to_wire(end.settled_at)
    match end.outcome:
        case Outcome.COMPLETED:
            return f"{receiver(end.receiver_id)} completed the message at {at}."
        case Outcome.RECEIVED:
            return f"{receiver(end.receiver_id)} received the message at {at} and did not have to settle it."
        case Outcome.EXPIRED:
            return f"The message was removed at {at}, because its time to live had ended."
        case Outcome.PURGED:
            return f"A purge, or the deletion of the queue, removed the message at {at}."
        case Outcome.CANCELLED:
            return f"The message was cancelled at {at}."
        case Outcome.WITHDRAWN:
            return f"Its sender withdrew the message at {at}, because it waited no longer for the settlement."
        case (
            Outcome.ABANDONED
            | Outcome.DEAD_LETTERED
            | Outcome.DEFERRED
            | Outcome.RELEASED
            | Outcome.LOCK_EXPIRED
            | Outcome.ENTITY_CHANGED
            | Outcome.RECOVERED
        ):
            return f"The message left the queue at {at}. Its last delivery was {end.outcome.replace('_', '-')}."
        case _:
            assert_never(end.outcome)


def receiver(receiver_id: str | None) -> str:
    """Name a receiver at the beginning of a sentence."""
    return "A receiver without an id" if receiver_id is None else f"The receiver {receiver_id}"


def _reason_text(explanation: MessageExplanation, facts: MessageFacts) -> str:
    match explanation.reason:
        case MessageReason.NEXT | MessageReason.BEHIND_OTHERS | MessageReason.QUEUE_PAUSED:
            return _available_text(explanation)
        case MessageReason.BLOCKED:
            return _blocked_text(explanation, facts)
        case (
            MessageReason.LOCKED
            | MessageReason.LOCKED_ON_REQUEST
            | MessageReason.IN_TRANSACTION
            | MessageReason.LOCK_ENDED
        ):
            return _lock_text(explanation, facts)
        case MessageReason.SCHEDULED | MessageReason.RETRY_DELAYED | MessageReason.DUE:
            return _scheduled_text(explanation, facts)
        case MessageReason.DEFERRED:
            return f"The message is deferred. A receive that names its sequence number {facts.sequence_number} gets it."
        case MessageReason.DEAD_LETTERED:
            return f"{_dead_letter_text(facts)} It must be redriven, or received from the dead letters."
        case MessageReason.FORWARDING:
            return f"{_dead_letter_text(facts)} It moves to the queue of forward_dead_letters_to once that accepts it."
        case MessageReason.TIME_TO_LIVE_ENDED:
            change = "removes" if explanation.next_state is None else "dead-letters"
            return f"The time to live of the message has ended, and a background pass {change} it {SOON}."
        case MessageReason.ENDED:
            raise ValueError("a message in its queue has not ended")
        case _:
            assert_never(explanation.reason)


def _available_text(explanation: MessageExplanation) -> str:
    position = f"{_ahead(explanation)} delivered before it" if explanation.messages_ahead else "it is next"
    waiting = RECEIVERS_WAIT if explanation.receivers_waiting else NO_RECEIVER_WAITS
    return f"The message is available, and {position}. {waiting}"


def _blocked_text(explanation: MessageExplanation, facts: MessageFacts) -> str:
    blocked = f"The message is blocked in its group {facts.group_id}"
    if explanation.behind is None:
        return f"{blocked}, and a background pass makes the first messages of the group available {SOON}."
    before = f", and {_ahead(explanation)} blocked before it" if explanation.messages_ahead else ""
    behind = _in_flight(explanation.behind, explanation.waiting)
    return f"{blocked} behind message {explanation.behind.sequence_number}, {behind}{before}."


def _in_flight(behind: MessageFacts, waiting: WaitingSettlement | None) -> str:
    """Say what must happen to a message that is in flight in its group."""
    if waiting is not None:
        return f"whose {settlement_waits(waiting)}"
    if behind.lock_token is None:
        return "which is available and must be received and settled first"
    holder = receiver(behind.receiver_id)
    return f"which {holder[0].lower()}{holder[1:]} holds and must settle first"


def _ahead(explanation: MessageExplanation) -> str:
    number = explanation.messages_ahead or 0
    least = "at least " if number >= MAX_MESSAGES_AHEAD else ""
    return f"{least}{count_of(number, 'message is', 'messages are')}"


def _lock_text(explanation: MessageExplanation, facts: MessageFacts) -> str:
    if explanation.waiting is not None:
        return _transaction_text(explanation, facts, explanation.waiting)
    if explanation.reason is MessageReason.LOCKED_ON_REQUEST:
        return f"{receiver(facts.receiver_id)} holds the message until it settles it or asks for it again."
    until = to_wire(explanation.locked_until or facts.read_at)
    if explanation.reason is MessageReason.LOCK_ENDED:
        held = f"{receiver(facts.receiver_id)} held the message until {until}. A background pass releases it {SOON}"
        return f"{held}, and it {_after_lock(explanation, facts)}."
    held = f"{receiver(facts.receiver_id)} holds the message until {until}"
    return f"{held}. Without a settlement or a renewal it {_after_lock(explanation, facts)}."


def _transaction_text(explanation: MessageExplanation, facts: MessageFacts, waiting: WaitingSettlement) -> str:
    held = f"{receiver(facts.receiver_id)} holds the message, and its {settlement_waits(waiting)}"
    if explanation.locked_until is None:
        return f"{held}. Without the commit the receiver holds it until it settles it or asks for it again."
    return f"{held}. Without the commit it {_after_lock(explanation, facts)}."


def settlement_waits(waiting: WaitingSettlement) -> str:
    """Say which commit a settlement waits for."""
    which = (
        "a transaction of another client" if waiting.transaction_id is None else f"transaction {waiting.transaction_id}"
    )
    outcome = waiting.outcome.replace("_", "-")
    return f"settlement ({outcome}) waits for the commit of {which}, until {to_wire(waiting.expires_at)} at the latest"


def _after_lock(explanation: MessageExplanation, facts: MessageFacts) -> str:
    """Say what a message does when its lock ends, after "it"."""
    if explanation.next_state is None:
        return "is then removed"
    if explanation.deliverable_at is not None:
        return f"can be received again at {to_wire(explanation.deliverable_at)} at the latest"
    if explanation.next_state is MessageState.DEAD_LETTERED and facts.home_state is not MessageState.DEAD_LETTERED:
        return "is then dead-lettered, because it has failed as often as the queue allows"
    if explanation.next_state is MessageState.SCHEDULED:
        return "then waits for its retry delay"
    return "then returns to where it was"


def _scheduled_text(explanation: MessageExplanation, facts: MessageFacts) -> str:
    due_at = to_wire(facts.available_at)
    if explanation.reason is MessageReason.DUE:
        return f"The message was due at {due_at}, and a background pass makes it available {SOON}."
    if explanation.reason is MessageReason.SCHEDULED:
        return f"The message is scheduled and due at {due_at}."
    cause = f", at last with the reason {facts.last_failure}" if facts.last_failure else ""
    return f"The message has failed {count_of(facts.failure_count, 'time')}{cause}. It is due again at {due_at}."


def _dead_letter_text(facts: MessageFacts) -> str:
    at = "" if facts.dead_lettered_at is None else f" at {to_wire(facts.dead_lettered_at)}"
    reason = f" with the reason {facts.dead_letter_reason}" if facts.dead_letter_reason else ""
    description = f" ({facts.dead_letter_description})" if facts.dead_letter_description else ""
    return f"The message was dead-lettered{at}{reason}{description}."
