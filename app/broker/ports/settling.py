"""Locks: their renewal, their end, and the tombstones of their deliveries."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import msgspec

from app.domain.instant import Duration, Instant
from app.domain.settlement import MAX_GENERATION, LockedMessage, LockToken, Move, Removal, Settlement, Tombstone


@dataclass(frozen=True, slots=True)
class Extension:
    """A request to extend a lock in SQL to at least now + `duration`, or with `is_exact` to let it end exactly then.

    Takes effect if the token matches, `locked_until` is in the future, and the generation is above `expired_generation`
    and at most `max_generation`. With `is_exact` the new end may be earlier than the old one, and the generation stays.
    `keeps_history` if the queue may record the renewal.
    """

    token: LockToken
    queue_id: int
    duration: Duration
    expired_generation: int
    keeps_history: bool = False
    max_generation: int = MAX_GENERATION
    is_exact: bool = False


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


class SynchronousSendEnd(Enum):
    """Why a synchronous send ends: a receiver or an administrator settles its message, or the lock has ended."""

    SETTLED = auto()
    LOCK_ENDED = auto()


class SettlingStore(Protocol):
    """The store methods of settlements, renewals and ended locks."""

    async def locked_messages(self, tokens: Sequence[LockToken]) -> list[LockedMessage | None]:
        """Return the rows that still carry these tokens; None where a token is gone."""
        ...

    async def locked_message_id(self, queue_id: int, token: LockToken) -> str | None:
        """Return the message id of the message of a queue that this token locks, or None if it locks none."""
        ...

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """Settle locked rows and remove them from the queue, each under its fence; return whether each took effect.

        The same transaction moves the row to the archive with its token, or leaves a tombstone if the retention is 0.
        """
        ...

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """Settle locked rows and move them to another state, each under its fence; leave tombstones."""
        ...

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """Free rows whose lock has ended; leave tombstones with the time when it ended.

        The token must match. `locked_until` must have passed, or the row's generation must be the expired one in
        `move.fence.generation_above`. If `locked_until` has passed, it is the time when the lock ended.
        """
        ...

    async def settle_offer(self, settlement: Settlement, cause: SynchronousSendEnd) -> bool:
        """End a synchronous send, under the fence of `remove`, or of `release` if its lock has ended.

        Return whether the fence held. A completion archives the message as `remove` does, and keeps the reply for the
        sender. Every other outcome deletes the message. The same transaction stores a tombstone and the outcome for
        the sender.
        """
        ...

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """Extend locks and increment their generations, or set their ends; None where the fence does not hold."""
        ...

    async def tombstones(self, tokens: Sequence[LockToken]) -> list[Tombstone | None]:
        """Return the tombstones of these deliveries, from the archive or the settlement table."""
        ...

    async def delivered_since(self, tombstone: Tombstone) -> bool:
        """Return whether the message was delivered again after this delivery ended, in any state or the archive."""
        ...

    async def expired_locks(self, limit: int) -> list[LockedMessage]:
        """Return locked rows whose `locked_until` has passed, oldest first, unchanged."""
        ...

    async def locks_of_queue(self, queue_id: int, granted_until: Instant, limit: int) -> list[LockedMessage]:
        """Return rows of one queue whose lock was given up to `granted_until`, for a change that revokes them."""
        ...
