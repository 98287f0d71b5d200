"""What statements are given of a delivery that ends."""

from typing import Any

from app.domain.message import MessageState
from app.domain.settlement import TOMBSTONE_KEEP, Move, Removal
from app.store.documents import write_amended


def move_values(move: Move) -> dict[str, Any]:
    """What a statement needs to end a lock as the move says."""
    return {
        "sequence_number": move.token.sequence_number,
        "state": move.state.value,
        "dead_lettering": int(move.state is MessageState.DEAD_LETTERED),
        "delay": move.delay,
        "failures": move.failures,
        "last_failure": move.last_failure,
        "dead_letter_reason": move.dead_letter_reason,
        "dead_letter_description": move.dead_letter_description,
        "properties": write_amended(move.properties),
    }


def tombstone_values(ending: Move | Removal) -> dict[str, Any]:
    """What a statement needs to remember how a delivery ended."""
    return {
        "sequence_number": ending.token.sequence_number,
        "lock_token": ending.token.secret,
        "queue_id": ending.queue_id,
        "outcome": ending.outcome.value,
        "state": ending.state.value if isinstance(ending, Move) else None,
        "keep": TOMBSTONE_KEEP,
    }
