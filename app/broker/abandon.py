"""Abandon: the holder gives the message back, to be delivered again."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.broker.amend import Scalar, amended
from app.broker.broker import Broker
from app.broker.settling import Pending
from app.domain.instant import Duration
from app.domain.queue import Queue
from app.domain.settlement import ABANDONED, Failure, Held, LockToken, Move, Outcome, release


@dataclass(frozen=True, slots=True)
class Abandonment:
    """What a holder says when it gives a message back.

    `counted` false is for messages that were never processed (a stopping worker drains its own).
    """

    reason: str | None = None
    counted: bool = True
    delay: Duration | None = None
    changes: Mapping[str, Scalar] | None = None


def abandon(broker: Broker, queue: Queue, token: LockToken, said: Abandonment) -> Pending:
    """The ending that frees a message at once (S0.14, S3.22).

    Where it goes follows from its counts: back to its place, into a delay, or to the dead-letter
    queue at the limit.
    """

    def form(held: Held) -> Move:
        properties = amended(held.properties, said.changes) if said.changes else None
        # A failure without a reason has one too, or that of an earlier one would be taken for it.
        reason = said.reason or (ABANDONED if said.counted else None)
        failure = Failure(Outcome.ABANDONED, reason, said.counted, said.delay, properties)
        return release(held, queue.settings, failure, broker.chance())

    return Pending(token, Outcome.ABANDONED, form)
