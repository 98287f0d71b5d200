"""How a delivery ends: lock tokens, the fence that guards them, and what each ending does.

A locked row is settled or freed only by a statement that names the lock token and takes it away
(the fence), so at most one ending takes effect for one delivery. The rules here decide *what* the
ending does; the store applies it only if the fence still holds.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from app.domain.instant import HOUR, Duration, Instant
from app.domain.message import Message, MessageState, SelectedMessage
from app.domain.queue import QueueSettings
from app.domain.refusals import MessageNotFound
from app.domain.retry import retry_delay

SECRET_BYTES = 16
TOKEN_PATTERN = re.compile(r"([1-9][0-9]{0,17})\.([0-9a-f]{32})")
"""A token as it was given out. Eighteen digits are more than any sequence number will ever have, and never more
than a store's 64 bits hold."""
NO_EXPIRED_GENERATION = -1
"""The evidence generation where the lock store knows of no expired record."""

MAX_DELIVERY_COUNT_REASON = "max_delivery_count_exceeded"
TTL_EXPIRED_REASON = "ttl_expired"
ABANDONED_REASON = "abandoned"
LOCK_EXPIRED_REASON = "lock_expired"


class Outcome(StrEnum):
    """How a delivery, or a message, ended: the word in answers, tombstones and the archive."""

    COMPLETED = "completed"
    ABANDONED = "abandoned"
    DEAD_LETTERED = "dead_lettered"
    DEFERRED = "deferred"
    RECEIVED = "received"
    """Handed out by receive-and-delete."""
    RELEASED = "released"
    """Given back uncounted, because its receiver had gone before the answer began."""
    LOCK_EXPIRED = "lock_expired"
    ENTITY_CHANGED = "entity_changed"
    EXPIRED = "expired"
    PURGED = "purged"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class LockToken:
    """Proof of one delivery: the message's sequence number and 128 random bits, never reused."""

    sequence_number: int
    secret: bytes

    def __str__(self) -> str:
        return f"{self.sequence_number}.{self.secret.hex()}"

    @classmethod
    def parse(cls, text: str) -> "LockToken":
        """Read `<sequence_number>.<32 hex digits>`; anything else was never given out here.

        Refuses with `MessageNotFound`.
        """
        written = TOKEN_PATTERN.fullmatch(text)
        if written is None:
            raise MessageNotFound("This is not a lock token.")
        number, secret = written.groups()
        return cls(int(number), bytes.fromhex(secret))


@dataclass(frozen=True, slots=True)
class Fence:
    """What must still be true of a locked row for its holder to settle it.

    The token must match, `locked_until` must lie ahead, and the row's lock generation must be above
    `above` and at most `up_to`. `NEVER_RENEWED` lets a row through that no renewal has touched:
    there can be no evidence against it, so the lock store need not be asked. Once it was asked,
    `cleared(evidence)` lets every generation above the expired one through. `ANY_LOCK` asks for the token alone.
    """

    generation_above: int
    max_generation: int


MAX_GENERATION = 2**31 - 1
NEVER_RENEWED = Fence(NO_EXPIRED_GENERATION, 0)
ANY_LOCK = Fence(NO_EXPIRED_GENERATION - 1, MAX_GENERATION)
"""Lets a row through while its token is there, also when its time has passed: an administrator's fence."""


def fence_above(expired_generation: int) -> Fence:
    """The fence after the lock store was asked: `evidence` is the generation of an expired record."""
    return Fence(expired_generation, MAX_GENERATION)


@dataclass(frozen=True, slots=True)
class LockedMessage:
    """What the rules need to know of a locked row; its counts cannot change under one token."""

    token: LockToken
    queue_id: int
    lock_generation: int
    locked_until: Instant
    home_state: MessageState
    delivery_count: int
    failure_count: int
    properties: bytes
    read_at: Instant

    @property
    def is_live(self) -> bool:
        """Whether the upper bound of the lock still lies ahead."""
        return self.locked_until > self.read_at


@dataclass(frozen=True, slots=True)
class Removal:
    """The end of a locked message: out of the queue and into the archive, or to a tombstone."""

    token: LockToken
    queue_id: int
    queue: str
    outcome: Outcome
    retention: Duration
    fence: Fence = NEVER_RENEWED


@dataclass(frozen=True, slots=True)
class Move:
    """The end of a lock that keeps the message: where it goes and what is noted on it.

    `delay` None keeps its place in the order; otherwise it is due after that delay. `failures` is
    added to the failure count. `properties` None leaves them as they are.
    """

    token: LockToken
    queue_id: int
    outcome: Outcome
    state: MessageState
    delay: Duration | None = None
    failures: int = 0
    last_failure: str | None = None
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    properties: bytes | None = None
    fence: Fence = NEVER_RENEWED


TOMBSTONE_RETENTION: Duration = HOUR
"""How long a tombstone in `settlement` is kept: longer than anybody repeats a request."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is remembered of a delivery that has ended, so that a repeat hears the first answer."""

    token: LockToken
    queue_id: int
    outcome: Outcome
    state: MessageState | None
    settled_at: Instant


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to a settlement; `replayed` when it had already taken effect before."""

    sequence_number: int
    outcome: Outcome
    state: MessageState | None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """What a release says of itself: its outcome, a reason to note, whether it counts, any delay."""

    outcome: Outcome
    reason: str | None = None
    counted: bool = True
    delay: Duration | None = None
    properties: bytes | None = None


def release(row: LockedMessage, settings: QueueSettings, failure: Failure, random_fraction: float) -> Move:
    """Where a message goes when its lock ends without success (S3.17, S3.18, S2.7, S2.8).

    A message taken from the dead-letter queue goes back there. A counted failure that reaches the
    limit dead-letters the message. Otherwise the delay asked for, or else the queue's retry policy,
    makes it wait; without a delay it keeps its original place. An uncounted release never waits
    unless it asks to (messages drained by a stopping worker).
    """
    failures = int(failure.counted and row.home_state is not MessageState.DEAD_LETTERED)
    back = Move(
        token=row.token,
        queue_id=row.queue_id,
        outcome=failure.outcome,
        state=row.home_state,
        failures=failures,
        last_failure=failure.reason,
        properties=failure.properties,
    )
    failed = row.failure_count + failures
    if failures and failed >= settings.max_delivery_count:
        return replace(
            back,
            state=MessageState.DEAD_LETTERED,
            dead_letter_reason=MAX_DELIVERY_COUNT_REASON,
            dead_letter_description=f"Failed {failed} times.",
        )
    delay = failure.delay
    if delay is None and failures:
        delay = retry_delay(settings.retry, failed, random_fraction)
    if delay and row.home_state is MessageState.AVAILABLE:
        return replace(back, state=MessageState.SCHEDULED, delay=delay)
    return back


def token_of(message: Message | SelectedMessage) -> LockToken:
    """By what a locked message is held. Raises `ValueError` where nobody holds it."""
    if message.lock_token is None:
        raise ValueError(f"message {message.sequence_number} is not locked")
    return LockToken(message.sequence_number, message.lock_token)


def undelivered_release(message: Message) -> Move:
    """The end of a delivery that its receiver never heard of: uncounted, and in its old place."""
    return Move(token_of(message), message.queue_id, Outcome.RELEASED, message.home_state)
