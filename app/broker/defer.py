"""Defer: the message is set aside, to be received later by its sequence number alone."""

from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import LockToken, Move, Outcome


def defer(queue: Queue, token: LockToken, properties: bytes | None = None) -> Move:
    """The ending that sets a message aside (S3.25)."""
    return Move(token, queue.id, Outcome.DEFERRED, MessageState.DEFERRED, properties=properties)
