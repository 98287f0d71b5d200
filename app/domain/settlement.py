"""Settlements: lock tokens, the fence that guards them, and the effect of each settlement.

A locked row is settled or freed only by a statement that names the lock token and removes it (the fence), so at most
one settlement takes effect for one delivery. The rules here decide *what* the settlement does; the store applies it
only if the fence still holds.
"""

import re
from enum import StrEnum
from typing import TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from app.domain.instant import HOUR, Duration, Instant
from app.domain.message import Message, MessageState, SelectedMessage
from app.domain.plurals import count_of
from app.domain.queue import QueueSettings
from app.domain.refusals import LossCause, MessageNotFound
from app.domain.retry import retry_delay

SECRET_BYTES = 16
"""Random bytes of a lock token. It limits no request."""
TOKEN_PATTERN = re.compile(r"([1-9][0-9]{0,17})\.([0-9a-f]{32})")
"""The form of a token. Eighteen digits are enough for every sequence number and always fit into a store's 64 bits."""
NO_EXPIRED_GENERATION = -1
"""The expired generation if the lock store has no expired record."""

MAX_DELIVERY_COUNT_REASON = "max_delivery_count_exceeded"
TTL_EXPIRED_REASON = "ttl_expired"
ABANDONED_REASON = "abandoned"
LOCK_EXPIRED_REASON = "lock_expired"


class Outcome(StrEnum):
    """How a delivery or a message ended: the value in responses, tombstones and the archive."""

    COMPLETED = "completed"
    ABANDONED = "abandoned"
    DEAD_LETTERED = "dead_lettered"
    DEFERRED = "deferred"
    RECEIVED = "received"
    """Delivered by receive-and-delete."""
    RELEASED = "released"
    """Returned without counting the delivery: by its receiver, or because its receiver disconnected before the response."""
    RECOVERED = "recovered"
    """Delivered again to the same receiver, at its request, under another token."""
    LOCK_EXPIRED = "lock_expired"
    ENTITY_CHANGED = "entity_changed"
    EXPIRED = "expired"
    PURGED = "purged"
    CANCELLED = "cancelled"
    WITHDRAWN = "withdrawn"
    """Taken back, because the sender that waited for the settlement waits no longer."""


RESTORABLE_OUTCOMES = frozenset({Outcome.PURGED, Outcome.CANCELLED})
"""Outcomes that an administrator decided and can undo."""


def loss_cause(outcome: Outcome) -> LossCause | None:
    """Return why the holder of a delivery with this outcome has lost its lock; None if the message was settled."""
    match outcome:
        case Outcome.LOCK_EXPIRED:
            return LossCause.EXPIRED
        case Outcome.RECOVERED:
            return LossCause.RECOVERED
        case Outcome.ENTITY_CHANGED:
            return LossCause.ENTITY_CHANGED
        case Outcome.PURGED | Outcome.CANCELLED:
            return LossCause.ADMINISTRATOR
        case Outcome.WITHDRAWN:
            return LossCause.WITHDRAWN
        case (
            Outcome.COMPLETED
            | Outcome.ABANDONED
            | Outcome.DEAD_LETTERED
            | Outcome.DEFERRED
            | Outcome.RECEIVED
            | Outcome.RELEASED
            | Outcome.EXPIRED
        ):
            return None
        case _:
            assert_never(outcome)


class LockToken(msgspec.Struct, frozen=True):
    """Proof of one delivery: the message's sequence number and 128 random bits, never reused."""

    sequence_number: int
    secret: bytes

    def __str__(self) -> str:
        return f"{self.sequence_number}.{self.secret.hex()}"

    @classmethod
    def parse(cls, text: str) -> "LockToken":
        """Parse `<sequence_number>.<32 hex digits>`. Refuses with `MessageNotFound`: no other form was ever issued."""
        match = TOKEN_PATTERN.fullmatch(text)
        if match is None:
            raise MessageNotFound("This is not a lock token.")
        number, secret = match.groups()
        return cls(int(number), bytes.fromhex(secret))


class Fence(msgspec.Struct, frozen=True):
    """What must still be true of a locked row for its holder to settle it.

    The token must match, `locked_until` must be in the future, and the row's lock generation must be above
    `generation_above` and at most `max_generation`. `NEVER_RENEWED` matches rows without a renewal: the lock store has
    no record of them and need not be asked. `fence_above` matches every generation above the one that expired in the
    lock store. `ANY_LOCK` requires only the token.
    """

    generation_above: int
    max_generation: int


MAX_GENERATION = 2**31 - 1
"""No lock has a higher generation. It limits no request."""
NEVER_RENEWED = Fence(NO_EXPIRED_GENERATION, 0)
ANY_LOCK = Fence(NO_EXPIRED_GENERATION - 1, MAX_GENERATION)
"""Matches a row while it carries the token, even after its time has passed: the fence of administrators."""


def fence_above(expired_generation: int) -> Fence:
    """Return the fence for the expired generation that the lock store has reported."""
    return Fence(expired_generation, MAX_GENERATION)


class LockedMessage(msgspec.Struct, frozen=True):
    """A locked row as the rules need it; its counts cannot change under one token.

    `is_in_transaction` says that a settlement under this token waits for the commit of a transaction. `is_offered` if
    its sender waits for the settlement. Then it has no state to return to.
    """

    token: LockToken
    queue_id: int
    lock_generation: int
    locked_until: Instant
    home_state: MessageState
    delivery_count: int
    failure_count: int
    properties: bytes
    is_in_group: bool
    is_in_transaction: bool
    read_at: Instant
    is_offered: bool = False

    @property
    def is_live(self) -> bool:
        """Whether `locked_until`, the upper bound of the lock, is in the future."""
        return self.locked_until > self.read_at


class Removal(msgspec.Struct, frozen=True):
    """A settlement that moves a locked message from the queue to the archive, or leaves a tombstone.

    `is_in_group` says that the message may be in a group. Otherwise the settlement has no effect on one that is, because
    the next message of the group would not follow. `keeps_history` says that the queue may record the settlement.
    `is_offered` says that the sender waits for the settlement, and `reply` is its answer. A settlement that does not say
    so has no effect on such a message.
    """

    token: LockToken
    queue_id: int
    queue: str
    outcome: Outcome
    retention: Duration
    fence: Fence = NEVER_RENEWED
    is_in_group: bool = False
    keeps_history: bool = False
    is_offered: bool = False
    reply: bytes | None = None


class Move(msgspec.Struct, frozen=True):
    """A settlement that keeps the message in the queue: its new state and the fields to set.

    With `delay` None the message keeps its position; otherwise it is due after that delay. `failures` is added to the
    failure count. `delivery_count` None leaves it unchanged, and 0 also clears the times of deliveries. `properties` None
    leaves them unchanged. `is_in_group` and `keeps_history` are as in `Removal`; a message that stays available needs no
    `is_in_group`. With `is_offered` the message leaves its queue instead, and of this only the outcome remains.
    """

    token: LockToken
    queue_id: int
    outcome: Outcome
    state: MessageState
    delay: Duration | None = None
    failures: int = 0
    delivery_count: int | None = None
    last_failure: str | None = None
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    properties: bytes | None = None
    fence: Fence = NEVER_RENEWED
    is_in_group: bool = False
    keeps_history: bool = False
    is_offered: bool = False


Settlement: TypeAlias = Removal | Move

TOMBSTONE_RETENTION: Duration = HOUR
"""How long a tombstone in `settlement` is kept: longer than any client repeats a request."""


class Tombstone(msgspec.Struct, frozen=True):
    """The record of an ended delivery, so that a repeated settlement gets the first result."""

    token: LockToken
    queue_id: int
    outcome: Outcome
    state: MessageState | None
    settled_at: Instant


class Settled(msgspec.Struct, frozen=True):
    """The result of a settlement; `replayed` if it had already taken effect."""

    sequence_number: int
    outcome: Outcome
    state: MessageState | None
    replayed: bool = False


def settled_by(settlement: Settlement) -> Settled:
    """Return the result of a settlement that took effect."""
    state = settlement.state if isinstance(settlement, Move) and not settlement.is_offered else None
    return Settled(settlement.token.sequence_number, settlement.outcome, state)


class Failure(msgspec.Struct, frozen=True):
    """The end of a delivery without success: outcome, reason, whether it counts, and an optional delay."""

    outcome: Outcome
    reason: str | None = None
    counted: bool = True
    delay: Duration | None = None
    properties: bytes | None = None


def release(row: LockedMessage, settings: QueueSettings, failure: Failure, random_fraction: float) -> Move:
    """Return the move of a message when its lock ends without success (S3.17, S3.18, S2.7, S2.8).

    A message received from the dead-letter queue returns there. A counted failure that reaches the limit dead-letters
    the message. Otherwise the message waits for the requested delay, or for that of the queue's retry policy. Without a
    delay it keeps its original position. An uncounted release waits only if it requests a delay (messages that a
    stopping worker returns).
    """
    failures = int(failure.counted and row.home_state is not MessageState.DEAD_LETTERED)
    move = Move(
        token=row.token,
        queue_id=row.queue_id,
        outcome=failure.outcome,
        state=row.home_state,
        failures=failures,
        last_failure=failure.reason,
        properties=failure.properties,
        is_in_group=row.is_in_group,
        is_offered=row.is_offered,
    )
    failure_count = row.failure_count + failures
    if failures and failure_count >= settings.max_delivery_count:
        return replace(
            move,
            state=MessageState.DEAD_LETTERED,
            dead_letter_reason=MAX_DELIVERY_COUNT_REASON,
            dead_letter_description=f"Failed {count_of(failure_count, 'time')}.",
        )
    delay = failure.delay
    if delay is None and failures:
        delay = retry_delay(settings.retry, failure_count, random_fraction)
    if delay and row.home_state is MessageState.AVAILABLE:
        return replace(move, state=MessageState.SCHEDULED, delay=delay)
    return move


def token_of(message: Message | SelectedMessage) -> LockToken:
    """Return the token of a locked message. Raises `ValueError` if it is not locked."""
    if message.lock_token is None:
        raise ValueError(f"message {message.sequence_number} is not locked")
    return LockToken(message.sequence_number, message.lock_token)


def release_unprocessed(row: LockedMessage) -> Move:
    """Return the move of a message that its receiver has not begun to process (S2.21).

    It returns to its state and position. Neither the delivery nor a failure is counted.
    """
    return Move(
        row.token,
        row.queue_id,
        Outcome.RELEASED,
        row.home_state,
        delivery_count=row.delivery_count - 1,
        is_in_group=row.is_in_group,
        is_offered=row.is_offered,
    )


def undelivered_release(message: Message, *, keeps_history: bool = False) -> Move:
    """Return the same move, for a message that never reached its receiver."""
    return Move(
        token_of(message),
        message.queue_id,
        Outcome.RELEASED,
        message.home_state,
        delivery_count=message.delivery_count - 1,
        keeps_history=keeps_history,
    )
