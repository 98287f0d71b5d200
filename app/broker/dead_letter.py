"""Dead-letter: a message that cannot be processed is kept apart, with the reason, for inspection."""

from collections.abc import Mapping

from app.broker.merge_properties import Scalar, with_changed_properties
from app.broker.settle import SettlementRequest
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import LockToken, Move, Outcome


def dead_letter(
    queue: Queue,
    token: LockToken,
    reason: str | None,
    description: str | None,
    changes: Mapping[str, Scalar] | None = None,
) -> SettlementRequest:
    """The settlement that moves a message to the dead-letter queue of its own queue (S3.19, S3.24)."""
    move = Move(
        token,
        queue.id,
        Outcome.DEAD_LETTERED,
        MessageState.DEAD_LETTERED,
        dead_letter_reason=reason,
        dead_letter_description=description,
    )
    return with_changed_properties(move, changes)
