"""Defer: a message is set aside and can then be received only by its sequence number."""

from collections.abc import Mapping

from app.broker.merge_properties import Scalar, with_changed_properties
from app.broker.settle import SettlementRequest
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import LockToken, Move, Outcome


def defer(queue: Queue, token: LockToken, changes: Mapping[str, Scalar] | None = None) -> SettlementRequest:
    """The settlement that sets a message aside (S3.25)."""
    move = Move(token, queue.id, Outcome.DEFERRED, MessageState.DEFERRED)
    return with_changed_properties(move, changes)
