"""The settlement of each verb: complete, abandon, defer, dead-letter and release."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from app.broker.settling.settle import PendingSettlement, SettlementRequest
from app.domain.instant import Duration
from app.domain.message import MessageState, check_properties
from app.domain.queue import Queue
from app.domain.settlement import (
    ABANDONED_REASON,
    Failure,
    LockedMessage,
    LockToken,
    Move,
    Outcome,
    Removal,
    release_unprocessed,
)
from app.domain.settlement import release as release_after
from app.domain.synchronous_send import check_reply

Scalar: TypeAlias = str | int | float | bool | None

_decode = msgspec.json.Decoder(dict[str, Scalar]).decode
_encode = msgspec.json.Encoder().encode


def complete(queue: Queue, token: LockToken, reply: bytes | None = None) -> Removal:
    """The settlement that removes a processed message from the queue (S0.7, S3.20). Refuses with `ReplyTooLarge`.

    The same transaction moves its row to the archive, with the token that settled it. If the queue keeps no archive,
    the row leaves a tombstone instead (S2.11). The reply is for a sender that waits for the settlement; without one it
    is discarded.
    """
    if reply is not None:
        check_reply(reply)
    return Removal(token, queue.id, queue.name, Outcome.COMPLETED, queue.settings.archive_retention, reply=reply)


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
    """The settlement that gives a message back at once, to be delivered again (S0.14, S3.22).

    The message returns to its position, waits for a delay, or is dead-lettered when its failure count reaches the
    limit.
    """

    def build(locked: LockedMessage, random_fraction: float) -> Move:
        properties = merge_properties(locked.properties, abandonment.changes) if abandonment.changes else None
        # Without a default, the reason of an earlier failure would remain on the message.
        reason = abandonment.reason or (ABANDONED_REASON if abandonment.counted else None)
        failure = Failure(Outcome.ABANDONED, reason, abandonment.counted, abandonment.delay, properties)
        return release_after(locked, queue.settings, failure, random_fraction)

    return PendingSettlement(token, Outcome.ABANDONED, build)


def release(_queue: Queue, token: LockToken) -> PendingSettlement:
    """The settlement that undoes the delivery of a message that its holder has not begun to process (S2.21).

    The message returns to its state and position. `delivery_count` is as before the delivery, and no failure is counted, so a
    release never dead-letters a message.
    """

    def build(locked: LockedMessage, _random_fraction: float) -> Move:
        return release_unprocessed(locked)

    return PendingSettlement(token, Outcome.RELEASED, build)


def defer(queue: Queue, token: LockToken, changes: Mapping[str, Scalar] | None = None) -> SettlementRequest:
    """The settlement that sets a message aside, which can then be received only by its sequence number (S3.25)."""
    move = Move(token, queue.id, Outcome.DEFERRED, MessageState.DEFERRED)
    return _with_changed_properties(move, changes)


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
    return _with_changed_properties(move, changes)


def _with_changed_properties(move: Move, changes: Mapping[str, Scalar] | None) -> SettlementRequest:
    if not changes:
        return move
    return PendingSettlement(
        move.token,
        move.outcome,
        lambda locked, _: replace(move, properties=merge_properties(locked.properties, changes)),
    )


def merge_properties(properties: bytes, changes: Mapping[str, Scalar]) -> bytes:
    """Return a message's properties with the changes of its holder, as JSON.

    Refuses with `InvalidRequest` above the limits.
    """
    merged = {**(_decode(properties) if properties else {}), **changes}
    encoded = _encode(merged)
    check_properties(len(merged), len(encoded), "/properties")
    return encoded
