"""Why a queue is stalled: facts from the store in, an explanation out."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.domain.explanation import DeliveryContext, MessageFacts, explain_message
from app.domain.instant import Instant
from app.domain.queue import QueueCounts, QueueSettings, Redelivery, is_receive_enabled, is_send_enabled
from app.domain.transaction import WaitingSettlement

MAX_LOCKS_READ = 1_000
"""How many locks of a queue are read. With more, their holders and their ends are those of the locks that were read."""

MAX_DUE_TIMES_READ = 1_000
"""How many due times of scheduled messages are read, in the order of due times and in that of sequence numbers. It
limits no request."""


class QueueReason(StrEnum):
    """Why a queue is stalled, or that it is not.

    - `queue_paused`: its status refuses receives.
    - `empty`: it holds no message.
    - `all_uncommitted`: it holds no message, and sends wait for the commits of transactions.
    - `sends_disabled`: it holds no message, and its status refuses sends.
    - `receivers_waiting`: messages are available and a receiver waits on this server. They are being delivered, or the
      filters of the receivers do not match them.
    - `receivers_busy`: messages are available, no receiver waits on this server, and receivers hold other messages.
    - `no_receiver`: messages are available, no receiver waits on this server, and none holds a message.
    - `all_locked`: no message is available, and receivers hold messages. Others may be blocked behind them.
    - `all_blocked`: no message is available or locked, and a background pass is about to make blocked ones available.
    - `all_scheduled`: no message is available, locked or blocked, and some are scheduled.
    - `set_aside`: all messages are deferred or dead-lettered.
    """

    QUEUE_PAUSED = "queue_paused"
    EMPTY = "empty"
    ALL_UNCOMMITTED = "all_uncommitted"
    SENDS_DISABLED = "sends_disabled"
    RECEIVERS_WAITING = "receivers_waiting"
    RECEIVERS_BUSY = "receivers_busy"
    NO_RECEIVER = "no_receiver"
    ALL_LOCKED = "all_locked"
    ALL_BLOCKED = "all_blocked"
    ALL_SCHEDULED = "all_scheduled"
    SET_ASIDE = "set_aside"


class SendAcceptance(StrEnum):
    """Whether a queue takes sends: they are `accepted`, `disabled` by its status, or refused because it is `full`."""

    ACCEPTED = "accepted"
    DISABLED = "disabled"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What a queue holds. `locked` are up to `MAX_LOCKS_READ` of its locked messages.

    `next_due_at` is the due time of its next scheduled message, or a later one if many messages of other queues are due
    before. `waiting` are the settlements of these locks that wait for commits.
    """

    counts: QueueCounts
    locked: Sequence[MessageFacts]
    next_due_at: Instant | None
    receivers_waiting: bool
    read_at: Instant
    waiting: Sequence[WaitingSettlement] = ()


@dataclass(frozen=True, slots=True)
class QueueExplanation:
    """Why a queue is stalled, and what follows.

    `receivers` counts the receiver ids that hold a lock. `next_lock_end` is the latest time at which the first lock
    ends, None if no lock ends by time. `waiting` are the settlements that wait for possible commits, by their deadlines.
    `next_deliverable_at` is the latest time at which a receive can take a message if no client changes anything, None if
    no message will become available.
    """

    reason: QueueReason
    sends: SendAcceptance
    settings: QueueSettings
    facts: QueueFacts
    receivers: int
    next_lock_end: Instant | None
    waiting: Sequence[WaitingSettlement]
    next_deliverable_at: Instant | None


def explain_queue(facts: QueueFacts, settings: QueueSettings) -> QueueExplanation:
    """Explain why a queue is stalled, or that it is not."""
    return QueueExplanation(
        reason=_reason(facts, settings),
        sends=_sends(facts.counts, settings),
        settings=settings,
        facts=facts,
        receivers=len({message.receiver_id for message in facts.locked if message.receiver_id is not None}),
        next_lock_end=_next_lock_end(facts, settings),
        waiting=_waiting(facts),
        next_deliverable_at=_next_deliverable_at(facts, settings),
    )


def _reason(facts: QueueFacts, settings: QueueSettings) -> QueueReason:
    counts = facts.counts
    if not is_receive_enabled(settings):
        return QueueReason.QUEUE_PAUSED
    if not counts.total:
        if counts.uncommitted:
            return QueueReason.ALL_UNCOMMITTED
        return QueueReason.EMPTY if is_send_enabled(settings) else QueueReason.SENDS_DISABLED
    if counts.available:
        if facts.receivers_waiting:
            return QueueReason.RECEIVERS_WAITING
        return QueueReason.RECEIVERS_BUSY if counts.locked else QueueReason.NO_RECEIVER
    if counts.locked:
        return QueueReason.ALL_LOCKED
    if counts.blocked:
        return QueueReason.ALL_BLOCKED
    return QueueReason.ALL_SCHEDULED if counts.scheduled else QueueReason.SET_ASIDE


def _sends(counts: QueueCounts, settings: QueueSettings) -> SendAcceptance:
    if not is_send_enabled(settings):
        return SendAcceptance.DISABLED
    is_full = settings.max_messages is not None and counts.total >= settings.max_messages
    return SendAcceptance.FULL if is_full else SendAcceptance.ACCEPTED


def _waiting(facts: QueueFacts) -> Sequence[WaitingSettlement]:
    can_commit = (settlement for settlement in facts.waiting if settlement.expires_at > facts.read_at)
    return sorted(can_commit, key=lambda settlement: settlement.expires_at)


def _next_lock_end(facts: QueueFacts, settings: QueueSettings) -> Instant | None:
    if settings.redelivery is Redelivery.ON_REQUEST:
        return None
    return min((message.locked_until for message in facts.locked if message.locked_until is not None), default=None)


def _next_deliverable_at(facts: QueueFacts, settings: QueueSettings) -> Instant | None:
    if not is_receive_enabled(settings):
        return None
    if facts.counts.available or (facts.counts.blocked and not facts.counts.locked):
        return facts.read_at
    # A message that falls due may be blocked behind a locked one of its group.
    may_be_blocked = settings.group_in_flight is not None and facts.counts.locked
    due_at = None if may_be_blocked else facts.next_due_at
    released = (explain_message(message, settings, DeliveryContext()).deliverable_at for message in facts.locked)
    times = [time for time in (due_at, *released) if time is not None]
    return max(facts.read_at, min(times)) if times else None
