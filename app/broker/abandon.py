"""Abandon: the holder gives the message back, to be delivered again."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.broker.broker import Broker
from app.broker.merge_properties import Scalar, merge_properties
from app.broker.settle import PendingSettlement
from app.domain.instant import Duration
from app.domain.queue import Queue
from app.domain.settlement import ABANDONED_REASON, Failure, LockedMessage, LockToken, Move, Outcome, release


@dataclass(frozen=True, slots=True)
class Abandonment:
    """What a holder says when it gives a message back.

    `counted` false is for messages that were never processed (a stopping worker drains its own).
    """

    reason: str | None = None
    counted: bool = True
    delay: Duration | None = None
    changes: Mapping[str, Scalar] | None = None


def abandon(broker: Broker, queue: Queue, token: LockToken, abandonment: Abandonment) -> PendingSettlement:
    """The ending that frees a message at once (S0.14, S3.22).

    Where it goes follows from its counts: back to its place, into a delay, or to the dead-letter
    queue at the limit.
    """

    def form(held: LockedMessage) -> Move:
        properties = merge_properties(held.properties, abandonment.changes) if abandonment.changes else None
        # A failure without a reason has one too, or that of an earlier one would be taken for it.
        reason = abandonment.reason or (ABANDONED_REASON if abandonment.counted else None)
        failure = Failure(Outcome.ABANDONED, reason, abandonment.counted, abandonment.delay, properties)
        return release(held, queue.settings, failure, broker.random_fraction())

    return PendingSettlement(token, Outcome.ABANDONED, form)
