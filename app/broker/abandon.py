"""Abandon: the holder gives the message back, to be delivered again."""

from app.broker.broker import Broker
from app.domain.queue import Queue
from app.domain.settlement import Failure, Held, Move, Outcome, release
from app.domain.instant import Duration


def abandon(
    broker: Broker,
    queue: Queue,
    held: Held,
    failure: Failure,
) -> Move:
    """The ending that frees a message at once (S0.14, S3.22), counted or not.

    Where it goes follows from its counts, which cannot change while this token holds it: back to its
    place, into a delay, or to the dead-letter queue at the limit.
    """
    return release(held, queue.settings, failure, broker.chance())


def abandoned(reason: str | None, *, counted: bool, delay: Duration | None, properties: bytes | None) -> Failure:
    """What an abandoning holder says of its failure."""
    return Failure(Outcome.ABANDONED, reason, counted, delay, properties)
