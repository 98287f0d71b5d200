"""Abandon: the holder gives the message back, to be delivered again."""

from collections.abc import Mapping

import msgspec

from app.broker.merge_properties import Scalar, merge_properties
from app.broker.settle import PendingSettlement
from app.domain.instant import Duration
from app.domain.queue import Queue
from app.domain.settlement import ABANDONED_REASON, Failure, LockedMessage, LockToken, Move, Outcome, release


class Abandonment(msgspec.Struct, frozen=True):
    """The parameters of an abandon.

    `counted` is false for messages that were never processed, for example when a worker drains its messages on
    shutdown.
    """

    reason: str | None = None
    counted: bool = True
    delay: Duration | None = None
    changes: Mapping[str, Scalar] | None = None


def abandon(queue: Queue, token: LockToken, abandonment: Abandonment) -> PendingSettlement:
    """The settlement that frees a message at once (S0.14, S3.22).

    The message returns to its position, waits for a delay, or is dead-lettered when its failure count reaches the
    limit.
    """

    def build(locked: LockedMessage, random_fraction: float) -> Move:
        properties = merge_properties(locked.properties, abandonment.changes) if abandonment.changes else None
        # Without a default, the reason of an earlier failure would remain on the message.
        reason = abandonment.reason or (ABANDONED_REASON if abandonment.counted else None)
        failure = Failure(Outcome.ABANDONED, reason, abandonment.counted, abandonment.delay, properties)
        return release(locked, queue.settings, failure, random_fraction)

    return PendingSettlement(token, Outcome.ABANDONED, build)
