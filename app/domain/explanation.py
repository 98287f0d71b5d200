"""Why a message is not delivered: facts from the stores in, an explanation out."""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import assert_never

from app.domain.delivery import DeliveryPosition
from app.domain.instant import Duration, Instant
from app.domain.message import MessageState
from app.domain.queue import QueueSettings, QueueStatus, Redelivery, is_receive_enabled
from app.domain.settlement import LOCK_EXPIRED_REASON, Failure, LockedMessage, LockToken, Move, Outcome, release
from app.domain.transaction import WaitingSettlement

MAX_MESSAGES_AHEAD = 1_000
"""How many messages ahead of another one are counted. The count reads one index entry for each."""


EXPIRING_STATES = (MessageState.AVAILABLE, MessageState.BLOCKED, MessageState.SCHEDULED, MessageState.DEFERRED)
"""The states in which the end of the time to live removes a message."""


class MessageReason(StrEnum):
    """Why a message is not delivered.

    - `next`: it is available and the next one in the order of delivery.
    - `behind_others`: it is available, and `messages_ahead` messages are delivered before it.
    - `queue_paused`: it is available, and the status of its queue refuses receives.
    - `blocked`: its group has as many messages in flight as its queue allows. `behind` is the first of these, and
      `messages_ahead` messages of the group are blocked before it.
    - `locked`: a receiver holds it.
    - `locked_on_request`: a receiver holds it in a queue with redelivery on request, until it settles it or asks again.
    - `in_transaction`: its receiver has settled it in a transaction that is open, and the commit is missing.
    - `lock_ended`: the lock of its receiver has ended, and a background pass is about to release it.
    - `scheduled`: its sender or an edit set its due time.
    - `retry_delayed`: it was delivered before and waits to be delivered again.
    - `due`: its due time has passed, and a background pass is about to make it available.
    - `deferred`: a receiver set it aside. A receive must name its sequence number.
    - `dead_lettered`: it must be redriven, or received from the dead letters.
    - `forwarding`: it was dead-lettered, and a background pass moves it to another queue once that queue accepts it.
    - `time_to_live_ended`: a background pass is about to remove or dead-letter it.
    - `ended`: it has left the queue. `outcome` says how.
    """

    NEXT = "next"
    BEHIND_OTHERS = "behind_others"
    QUEUE_PAUSED = "queue_paused"
    BLOCKED = "blocked"
    LOCKED = "locked"
    LOCKED_ON_REQUEST = "locked_on_request"
    IN_TRANSACTION = "in_transaction"
    LOCK_ENDED = "lock_ended"
    SCHEDULED = "scheduled"
    RETRY_DELAYED = "retry_delayed"
    DUE = "due"
    DEFERRED = "deferred"
    DEAD_LETTERED = "dead_lettered"
    FORWARDING = "forwarding"
    TIME_TO_LIVE_ENDED = "time_to_live_ended"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """The facts about a message in its queue that an explanation needs.

    `read_at` is the store's clock at the read. `is_offered` if the sender waits for the settlement.
    """

    sequence_number: int
    queue_id: int
    state: MessageState
    home_state: MessageState
    group_id: str | None
    priority: int
    available_at: Instant
    expires_at: Instant | None
    delivery_count: int
    failure_count: int
    lock_token: bytes | None
    locked_until: Instant | None
    lock_generation: int
    receiver_id: str | None
    last_failure: str | None
    dead_letter_reason: str | None
    dead_letter_description: str | None
    dead_lettered_at: Instant | None
    read_at: Instant
    is_offered: bool = False

    @property
    def delivery_position(self) -> DeliveryPosition:
        """Its position in the order of delivery."""
        return (-self.priority, self.available_at, self.sequence_number)

    @property
    def has_outlived_its_time(self) -> bool:
        """Whether its time to live has ended."""
        return self.expires_at is not None and self.expires_at <= self.read_at


@dataclass(frozen=True, slots=True)
class RecordedPromise:
    """What the lock store has recorded of a renewed lock.

    `remaining` is the time until the promise ends, by the clock of the lock store. It is at most 0 once it has ended.
    """

    generation: int
    remaining: Duration


@dataclass(frozen=True, slots=True)
class EndedMessage:
    """How a message ended. `receiver_id` is the receiver of its last delivery, if the archive has the message."""

    outcome: Outcome
    settled_at: Instant
    receiver_id: str | None


@dataclass(frozen=True, slots=True)
class DeliveryContext:
    """What decides when a message is delivered, besides the message and the settings of its queue.

    `messages_ahead` counts up to `MAX_MESSAGES_AHEAD` messages: those that are delivered before an available one, or
    that are blocked before a blocked one. `behind` is the first message in flight in the group of a blocked one.
    `receivers_waiting` is true if a receiver waits on this server. `promise` is the lock store's record of a renewed
    lock. `waiting` is the settlement of a locked message, or of the message `behind`, that waits for a commit.
    """

    messages_ahead: int = 0
    behind: MessageFacts | None = None
    receivers_waiting: bool = False
    promise: RecordedPromise | None = None
    waiting: WaitingSettlement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageExplanation:
    """Why a message in its queue is not delivered, and what follows.

    `locked_until` is the end of the lock. `next_state` is the state of the message after its lock or its time to live has
    ended, None if it is then removed. `deliverable_at` is the latest time at which a receive can take the message if no
    client changes anything, None if no receive will. `expires_first` is true if its time to live ends before that.
    `waits_for_group` is true if it enters its group when it is due, and may be blocked then. `waiting` is that of the
    context, while a commit is possible.
    """

    reason: MessageReason
    facts: MessageFacts
    queue_status: QueueStatus
    locked_until: Instant | None = None
    next_state: MessageState | None = None
    deliverable_at: Instant | None = None
    expires_first: bool = False
    waits_for_group: bool = False
    messages_ahead: int | None = None
    behind: MessageFacts | None = None
    receivers_waiting: bool | None = None
    waiting: WaitingSettlement | None = None


def lock_of(facts: MessageFacts) -> LockedMessage:
    """Return the lock of a locked message. Raises `ValueError` if it is not locked."""
    if facts.lock_token is None or facts.locked_until is None:
        raise ValueError(f"message {facts.sequence_number} is not locked")
    # `release` reads neither the properties nor the group nor the transaction of a message.
    return LockedMessage(
        token=LockToken(facts.sequence_number, facts.lock_token),
        queue_id=facts.queue_id,
        lock_generation=facts.lock_generation,
        locked_until=facts.locked_until,
        home_state=facts.home_state,
        delivery_count=facts.delivery_count,
        failure_count=facts.failure_count,
        properties=b"",
        is_in_group=False,
        is_in_transaction=False,
        read_at=facts.read_at,
        is_offered=facts.is_offered,
    )


def explain_message(facts: MessageFacts, settings: QueueSettings, context: DeliveryContext) -> MessageExplanation:
    """Explain a message that is in its queue."""
    explanation = _with_waiting(_explain_state(facts, settings, context), context.waiting)
    deliverable_at = explanation.deliverable_at
    if deliverable_at is not None and facts.expires_at is not None and facts.expires_at <= deliverable_at:
        return replace(explanation, deliverable_at=None, expires_first=True)
    if _enters_group(explanation, settings):
        return replace(explanation, deliverable_at=None, waits_for_group=True)
    return explanation if is_receive_enabled(settings) else replace(explanation, deliverable_at=None)


def _with_waiting(explanation: MessageExplanation, waiting: WaitingSettlement | None) -> MessageExplanation:
    """Add a settlement that waits for a commit. What follows the lock stays: it ends after the deadline."""
    if waiting is None or waiting.expires_at <= explanation.facts.read_at:
        return explanation
    is_locked = explanation.facts.state is MessageState.LOCKED
    return replace(
        explanation, waiting=waiting, reason=MessageReason.IN_TRANSACTION if is_locked else explanation.reason
    )


def _enters_group(explanation: MessageExplanation, settings: QueueSettings) -> bool:
    """Return whether a message enters its group when it becomes due. Other messages may then be in flight."""
    is_grouped = settings.group_in_flight is not None and explanation.facts.group_id is not None
    return is_grouped and MessageState.SCHEDULED in (explanation.facts.state, explanation.next_state)


def _explain_state(facts: MessageFacts, settings: QueueSettings, context: DeliveryContext) -> MessageExplanation:
    explained = partial(MessageExplanation, facts=facts, queue_status=settings.status)
    match facts.state:
        case state if state in EXPIRING_STATES and facts.has_outlived_its_time:
            is_kept = settings.dead_letter_on_expiry and not facts.is_offered
            next_state = MessageState.DEAD_LETTERED if is_kept else None
            return explained(reason=MessageReason.TIME_TO_LIVE_ENDED, next_state=next_state)
        case MessageState.AVAILABLE:
            return explained(
                reason=_reason_of_available(settings, context),
                deliverable_at=facts.read_at,
                messages_ahead=context.messages_ahead,
                receivers_waiting=context.receivers_waiting,
            )
        case MessageState.BLOCKED:
            return explained(
                reason=MessageReason.BLOCKED,
                messages_ahead=context.messages_ahead,
                behind=context.behind,
            )
        case MessageState.LOCKED if settings.redelivery is Redelivery.ON_REQUEST:
            return explained(reason=MessageReason.LOCKED_ON_REQUEST)
        case MessageState.LOCKED:
            return _explain_lock(facts, settings, context.promise)
        case MessageState.SCHEDULED:
            return explained(reason=_reason_of_scheduled(facts), deliverable_at=max(facts.available_at, facts.read_at))
        case MessageState.DEFERRED:
            return explained(reason=MessageReason.DEFERRED)
        case MessageState.DEAD_LETTERED if settings.forward_dead_letters_to is not None:
            return explained(reason=MessageReason.FORWARDING)
        case MessageState.DEAD_LETTERED:
            return explained(reason=MessageReason.DEAD_LETTERED)
        case _:
            assert_never(facts.state)


def _reason_of_available(settings: QueueSettings, context: DeliveryContext) -> MessageReason:
    if not is_receive_enabled(settings):
        return MessageReason.QUEUE_PAUSED
    return MessageReason.BEHIND_OTHERS if context.messages_ahead else MessageReason.NEXT


def _reason_of_scheduled(facts: MessageFacts) -> MessageReason:
    if facts.available_at <= facts.read_at:
        return MessageReason.DUE
    return MessageReason.RETRY_DELAYED if facts.delivery_count else MessageReason.SCHEDULED


def promised_end(
    locked_until: Instant, lock_generation: int, read_at: Instant, promise: RecordedPromise | None
) -> Instant:
    """Return when a lock ends for its receiver.

    SQL bounds the end, and a record of the same generation says when the promise really ends. `read_at` is the store's clock
    when the lock was read.
    """
    if promise is None or promise.generation != lock_generation:
        return locked_until
    return min(locked_until, read_at + promise.remaining)


def _explain_lock(facts: MessageFacts, settings: QueueSettings, promise: RecordedPromise | None) -> MessageExplanation:
    """Explain a lock.

    If the lock store loses the record, the message is released at the bound. The failure waits for the longest delay
    that the retry policy allows.
    """
    lock = lock_of(facts)
    locked_until = promised_end(lock.locked_until, lock.lock_generation, lock.read_at, promise)
    has_ended = locked_until <= lock.read_at
    move = release(lock, settings, Failure(Outcome.LOCK_EXPIRED, LOCK_EXPIRED_REASON), random_fraction=0.0)
    return MessageExplanation(
        reason=MessageReason.LOCK_ENDED if has_ended else MessageReason.LOCKED,
        facts=facts,
        queue_status=settings.status,
        locked_until=locked_until,
        next_state=None if move.is_offered else move.state,
        deliverable_at=_deliverable_after(move, lock.read_at if has_ended else lock.locked_until),
    )


def _deliverable_after(move: Move, released_at: Instant) -> Instant | None:
    if move.is_offered:
        return None
    match move.state:
        case MessageState.AVAILABLE | MessageState.SCHEDULED:
            return released_at + (move.delay or 0)
        case MessageState.LOCKED | MessageState.BLOCKED | MessageState.DEFERRED | MessageState.DEAD_LETTERED:
            return None
        case _:
            assert_never(move.state)
