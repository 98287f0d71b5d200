"""What is asked of the message store for every message: send, receive, settle."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from app.domain.delivery import Claim, DeliveryPosition
from app.domain.instant import Duration, Instant
from app.domain.message import Draft, Message, MessageMetadata, MessageState, Receipt
from app.domain.settlement import LockedMessage, LockToken, Move, Removal, Tombstone

Result = TypeVar("Result")


class QueueGone(Exception):
    """The queue of a send or redrive does not exist any more; nothing was stored. It may have been made again."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a request that carries an Idempotency-Key.

    `key` (32 bytes) names principal, verb, queue and key; `fingerprint` (32 bytes) the payload.
    """

    key: bytes
    fingerprint: bytes
    retention: Duration


@dataclass(frozen=True, slots=True)
class AttemptResult(Generic[Result]):
    """The answer of an attempt, and whether an earlier try had already given it."""

    result: Result
    replayed: bool


@dataclass(frozen=True, slots=True)
class Extension:
    """A wish to prolong a lock in SQL to at least now + `by`, unless its generation has expired.

    Takes effect where the token matches, `locked_until` lies ahead and the generation is above
    `evidence`.
    """

    token: LockToken
    queue_id: int
    duration: Duration
    expired_generation: int


@dataclass(frozen=True, slots=True)
class Extended:
    """A lock as a renewal left it in SQL, the store's clock when it did, and the end that the lock had before.

    `read_after` is this process's monotonic clock, in seconds, before the store was asked.
    """

    generation: int
    locked_until: Instant
    read_at: Instant
    previous_locked_until: Instant
    read_started_at: float


class MessageStore(Protocol):
    """The message store as the verbs of senders and receivers see it."""

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store all drafts in one transaction, each with the next sequence number in order.

        They are stored only where every queue among them is there. Raises `QueueGone` otherwise.

        A draft whose queue looks for duplicates and whose message id came within the window is not
        stored: its receipt is the first one's with `duplicate` set. Refuses with `Overloaded` where as many bytes as
        this process may hold wait to be stored.
        """
        ...

    async def send_once(self, drafts: Sequence[Draft], attempt: Attempt) -> AttemptResult[list[Receipt]]:
        """`send`, remembered under the attempt in the same transaction.

        Refuses with `KeyReused` (another fingerprint) or `RequestInProgress` (the first try holds
        the attempt for longer than a caller should wait).
        """
        ...

    async def find_send_result(self, attempt: Attempt) -> list[Receipt] | None:
        """What `send_once` has answered this attempt, None where it has not. Refuses with `KeyReused`. Changes nothing."""
        ...

    async def claim(self, claim: Claim) -> list[Message]:
        """Lock the next messages in order of `delivery_position`, count the delivery, answer them in order.

        Skips what other statements hold; sets token, `locked_until` = now + duration, generation 0,
        `home_state` = the state it was in, and the first and last delivery times. What was claimed for
        a caller that was cancelled meanwhile is given back by the store (outcome released, uncounted).
        """
        ...

    async def claim_once(self, claim: Claim, attempt: Attempt) -> AttemptResult[list[Message]]:
        """`claim`, remembered under the attempt in the same transaction.

        A repeat answers the same messages with the same tokens where those locks still live, with
        no delivery counted; `locked_until` is as it now stands. Refuses as `send_once` does.
        """
        ...

    async def check_attempt(self, attempt: Attempt) -> None:
        """Refuse with `KeyReused` what `claim_once` would, for whoever does something else first. Changes nothing."""
        ...

    async def claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """`claim`, but of these sequence numbers, in this order; those that others hold, or not in `claim.source`, are
        passed over and the next ones taken instead."""
        ...

    async def candidates(
        self, queue_id: int, source: MessageState, after: DeliveryPosition, limit: int
    ) -> list[MessageMetadata]:
        """What a claim from this state could take now from behind a place, in its order, untouched; no body is read."""
        ...

    async def read_metadata(self, queue_id: int, numbers: Sequence[int]) -> list[MessageMetadata]:
        """Those of these messages that are still in the queue, in any state, ascending, untouched; no body is read."""
        ...

    async def locked_messages(self, tokens: Sequence[LockToken]) -> list[LockedMessage | None]:
        """The facts of the rows that still carry these tokens; None where a token is gone."""
        ...

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """Settle locked rows out of the queue, each under its fence; whether each took effect.

        In the same transaction the row moves to the archive with its token, or leaves a tombstone
        where the queue's retention is 0.
        """
        ...

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """Settle locked rows into another state, each under its fence; leaves tombstones."""
        ...

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """Prolong locks; the generation grows by one. None where the lock is lost."""
        ...

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """Free rows whose lock has ended: the token matches and either `locked_until` has passed or
        the row's generation is the one in `move.fence.above` (positive evidence). Leaves tombstones
        that say when the lock ended: where its time has passed, that was then.
        """
        ...

    async def tombstones(self, tokens: Sequence[LockToken]) -> list[Tombstone | None]:
        """What is remembered of these deliveries, from the archive or the settlement table."""
        ...

    async def delivered_since(self, tombstone: Tombstone) -> bool:
        """Whether the message was handed out again after this delivery ended, wherever it is by now."""
        ...
