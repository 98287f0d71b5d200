"""The parameters of statements that end a delivery."""

from typing import Any

from app.domain.message import MessageState
from app.domain.settlement import TOMBSTONE_RETENTION, Move, Removal
from app.store.shared.json_columns import write_properties_change


def move_params(move: Move) -> dict[str, Any]:
    """Return what a statement needs to release a lock by this move."""
    return {
        "sequence_number": move.token.sequence_number,
        "state": move.state.value,
        "dead_lettering": int(move.state is MessageState.DEAD_LETTERED),
        "delay": move.delay,
        "failures": move.failures,
        "delivery_count": move.delivery_count,
        "last_failure": move.last_failure,
        "dead_letter_reason": move.dead_letter_reason,
        "dead_letter_description": move.dead_letter_description,
        "properties": write_properties_change(move.properties),
    }


def tombstone_params(settlement: Move | Removal) -> dict[str, Any]:
    """Return what a statement needs to record how a delivery ended."""
    return {
        "sequence_number": settlement.token.sequence_number,
        "lock_token": settlement.token.secret,
        "queue_id": settlement.queue_id,
        "outcome": settlement.outcome.value,
        "state": settlement.state.value if isinstance(settlement, Move) else None,
        "tombstone_retention": TOMBSTONE_RETENTION,
    }
