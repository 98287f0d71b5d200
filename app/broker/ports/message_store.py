"""The message store as send, receive and settle use it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from app.domain.delivery import Claim, DeliveryPosition, Recovery
from app.domain.instant import Duration, Instant
from app.domain.message import Draft, Message, MessageMetadata, MessageState, Receipt
from app.domain.settlement import LockedMessage, LockToken, Move, Removal, Tombstone
from app.domain.work_unit import WorkUnit, WorkUnitResult

Result = TypeVar("Result")


class QueueGone(Exception):
    """The queue of a send or redrive was deleted, or needs a newer server now; nothing was stored.

    A new queue may have its name.
    """


class SettlementsFailed(Exception):
    """The fences of these settlements did not hold, or other statements hold the rows. The work unit had no effect."""

    def __init__(self, tokens: frozenset[LockToken]) -> None:
        super().__init__(f"{len(tokens)} settlements had no effect")
        self.tokens = tokens


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a request that carries an Idempotency-Key.

    `key` (32 bytes) identifies principal, operation, queue and Idempotency-Key; `fingerprint` (32 bytes) the payload.
    """

    key: bytes
    fingerprint: bytes
    retention: Duration


class AttemptResult(msgspec.Struct, Generic[Result], frozen=True):
    """The result of a request, and whether it is the stored result of an earlier try of its attempt."""

    result: Result
    replayed: bool


@dataclass(frozen=True, slots=True)
class Extension:
    """A request to extend a lock in SQL to at least now + `duration`, unless its generation has expired.

    Takes effect if the token matches, `locked_until` is in the future and the generation is above `expired_generation`.
    `keeps_history` if the queue may record the renewal.
    """

    token: LockToken
    queue_id: int
    duration: Duration
    expired_generation: int
    keeps_history: bool = False


@dataclass(frozen=True, slots=True)
class Extended:
    """A lock after its renewal in SQL, the store's clock at that time, and the previous end of the lock.

    `read_started_at` is this process's monotonic clock, in seconds, before the statement was sent.
    """

    generation: int
    locked_until: Instant
    read_at: Instant
    previous_locked_until: Instant
    read_started_at: float


class Admitted(msgspec.Struct, frozen=True):
    """A message that was blocked behind its group and is available now."""

    queue_id: int
    sequence_number: int
    priority: int
    available_at: Instant


@dataclass(frozen=True, slots=True)
class Recovered:
    """Messages under new tokens, and the old tokens of those whose lock had been renewed."""

    messages: list[Message]
    renewed: list[LockToken]


class SendStore(Protocol):
    """What sends do in the store."""

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store all drafts in one transaction, each with the next sequence number in order.

        They are stored only if all their queues exist. Raises `QueueGone` otherwise.

        If the queue detects duplicates and the message id was sent within the window, the draft is not stored: its
        receipt is that of the first message, with `duplicate` set. Refuses with `Overloaded` if the drafts that wait to
        be stored already have as many bytes as this process may hold.
        """
        ...

    async def send_or_replay(self, drafts: Sequence[Draft], attempt: Attempt) -> AttemptResult[list[Receipt]]:
        """Send and store the result under the attempt, in one transaction. Without drafts, an empty result is stored.

        Refuses with `KeyReused` if the fingerprint differs. Refuses with `RequestInProgress` if the first try holds the
        attempt for longer than a caller should wait.
        """
        ...

    async def find_send_result(self, attempt: Attempt) -> list[Receipt] | None:
        """Return the stored result of `send_or_replay`, or None. Refuses with `KeyReused`. Changes nothing."""
        ...


class NumberedClaimStore(Protocol):
    """Claims of messages that are named by their sequence numbers."""

    async def claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """Claim messages with these sequence numbers, in this order.

        Skips messages that other statements hold or that are not in `claim.source`, and takes the next ones instead.
        """
        ...


class ClaimStore(NumberedClaimStore, Protocol):
    """Claims of the next messages."""

    async def claim(self, claim: Claim) -> list[Message]:
        """Lock the next messages in order of `delivery_position`, count the delivery, and return them in order.

        Skips rows that other statements hold. Sets the token, `locked_until` = now + duration, generation 0,
        `home_state` = the previous state, and the first and last delivery times. If the caller was cancelled meanwhile,
        the store releases its messages (outcome released).
        """
        ...

    async def claim_or_replay(self, claim: Claim, attempt: Attempt) -> AttemptResult[list[Message]]:
        """Claim and store the result under the attempt, in one transaction.

        A repeat returns the same messages with the same tokens if their locks are still live, and counts no delivery;
        `locked_until` is the current one. Refuses as `send_or_replay` does.
        """
        ...

    async def available_in_group(self, queue_id: int, group_id: str, limit: int) -> list[int]:
        """Return the numbers of the messages of this group that a claim could take, in order of delivery."""
        ...

    async def check_attempt(self, attempt: Attempt) -> None:
        """Refuse with `KeyReused` as `claim_or_replay` would, before the caller does other work. Changes nothing."""
        ...


class NumberedReadStore(Protocol):
    """Reads of messages that are named by their sequence numbers."""

    async def read_metadata(self, queue_id: int, numbers: Sequence[int]) -> list[MessageMetadata]:
        """Return those of these messages that are in the queue, in any state, ascending, unchanged; no body is read."""
        ...


class SearchStore(NumberedClaimStore, NumberedReadStore, Protocol):
    """What a receive through a filter reads and claims."""

    async def candidates(
        self, queue_id: int, source: MessageState, after: DeliveryPosition, limit: int
    ) -> list[MessageMetadata]:
        """Return messages that a claim could take after a position, in its order, unchanged; no body is read."""
        ...


class LockedMessageStore(Protocol):
    """The rows that receivers hold."""

    async def locked_messages(self, tokens: Sequence[LockToken]) -> list[LockedMessage | None]:
        """Return the rows that still carry these tokens; None where a token is gone."""
        ...


class MoveStore(Protocol):
    """Settlements that keep a message in its queue."""

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """Settle locked rows and move them to another state, each under its fence; leave tombstones."""
        ...


class TombstoneStore(Protocol):
    """What is remembered of deliveries that have ended."""

    async def tombstones(self, tokens: Sequence[LockToken]) -> list[Tombstone | None]:
        """Return the tombstones of these deliveries, from the archive or the settlement table."""
        ...

    async def delivered_since(self, tombstone: Tombstone) -> bool:
        """Return whether the message was delivered again after this delivery ended, in any state or the archive."""
        ...


class SettleStore(LockedMessageStore, MoveStore, TombstoneStore, Protocol):
    """What settlements do in the store."""

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """Settle locked rows and remove them from the queue, each under its fence; return whether each took effect.

        The same transaction moves the row to the archive with its token, or leaves a tombstone if the retention is 0.
        """
        ...


class CommitStore(Protocol):
    """What a commit reads of its message."""

    async def locked_message_id(self, queue_id: int, token: LockToken) -> str | None:
        """Return the message id of the message of a queue that this token locks, or None if it locks none."""
        ...


class WorkUnitStore(LockedMessageStore, Protocol):
    """Work units in the store."""

    async def execute(self, unit: WorkUnit, attempt: Attempt | None) -> AttemptResult[WorkUnitResult]:
        """Carry out the unit in one transaction, and store the result under the attempt if one is given.

        Raises `SettlementsFailed` if a settlement has no effect, and `QueueGone` as `send` does. Then nothing has
        changed. A draft that repeats a message id is not stored, as in `send`. Refuses as `send_or_replay` does.
        """
        ...

    async def find_execution_result(self, attempt: Attempt) -> WorkUnitResult | None:
        """Return the stored result of `execute`, or None. Refuses with `KeyReused`. Changes nothing."""
        ...


class RenewStore(LockedMessageStore, Protocol):
    """What renewals do in the store."""

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """Extend locks and increment their generations; None where the lock is lost."""
        ...


class ReleaseStore(Protocol):
    """The release of messages whose lock has ended."""

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """Free rows whose lock has ended; leave tombstones with the time when it ended.

        The token must match. `locked_until` must have passed, or the row's generation must be the expired one in
        `move.fence.generation_above`. If `locked_until` has passed, it is the time when the lock ended.
        """
        ...


class RecoverStore(Protocol):
    """The recovery of messages by their receiver."""

    async def recover(self, recovery: Recovery) -> Recovered:
        """Lock the messages that a receiver holds again, each under a new token, in order of `delivery_position`.

        In one transaction the deliveries under the old tokens end (outcome recovered, uncounted) and new ones begin:
        generation 0, `locked_until` as `lock_end` says. If a lock had been renewed, the queue's `lock_purges` grows.
        Skips locks that have ended, and rows that other statements hold.
        """
        ...


class MessageStore(
    SendStore,
    ClaimStore,
    SearchStore,
    SettleStore,
    CommitStore,
    WorkUnitStore,
    RenewStore,
    ReleaseStore,
    RecoverStore,
    Protocol,
):
    """The operations of senders and receivers."""
