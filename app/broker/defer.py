"""Defer: a message is set aside and can then be received only by its sequence number."""

from collections.abc import Mapping

from msgspec.structs import replace

from app.broker.merge_properties import Scalar, merge_properties
from app.broker.settle import PendingSettlement, SettlementRequest
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import LockToken, Move, Outcome


def defer(queue: Queue, token: LockToken, changes: Mapping[str, Scalar] | None = None) -> SettlementRequest:
    """The settlement that sets a message aside (S3.25)."""
    move = Move(token, queue.id, Outcome.DEFERRED, MessageState.DEFERRED)
    if not changes:
        return move
    return PendingSettlement(
        token, move.outcome, lambda locked, _: replace(move, properties=merge_properties(locked.properties, changes))
    )
