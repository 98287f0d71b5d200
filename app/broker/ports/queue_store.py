"""What the store keeps beside messages: queues and API keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.access import ApiKey
from app.domain.instant import Duration, Instant
from app.domain.queue import Queue, QueueCounts, QueueSettings


@dataclass(frozen=True, slots=True)
class LockRevocation:
    """Locks that a change of their queue takes: those that were given until then."""

    queue_id: int
    granted_until: Instant


@dataclass(frozen=True, slots=True)
class DeletedQueue:
    """What the messages of a deleted queue need: its name (empty if unknown) and how long to archive them."""

    name: str
    archive_retention: Duration


class QueueStore(Protocol):
    """The queues and their settings."""

    async def create(self, name: str, settings: QueueSettings, limit: int | None = None) -> tuple[Queue, bool]:
        """The queue of this name, made with these settings if there was none; whether it was made.

        Refuses with `TooManyQueues` to make one where there are `most` already, also of several who make some at once.
        """
        ...

    async def by_name(self, name: str) -> Queue | None:
        """The queue of this name."""
        ...

    async def by_id(self, queue_id: int) -> Queue | None:
        """The queue of this id."""
        ...

    async def page(self, after: str, limit: int) -> list[Queue]:
        """Queues with names above `after`, ascending by code point."""
        ...

    async def change(self, queue: Queue, settings: QueueSettings) -> Queue | None:
        """New settings for the queue as it was seen; None when its version has moved on.

        In the same transaction it is noted if this takes locks (see `revokes_locks`): a `LockRevocation` until `end_revocation`.
        """
        ...

    async def revocations(self, limit: int) -> list[LockRevocation]:
        """Which locks are still to be taken, earliest change first."""
        ...

    async def end_revocation(self, revocation: LockRevocation) -> None:
        """Note that these locks are taken; those of a later change of the queue stay to be taken."""
        ...

    async def delete(self, queue: Queue) -> bool:
        """Remove the queue as it was seen; its messages go to the archive after it. False when its version moved on."""
        ...

    async def find_deleted(self, queue_id: int) -> DeletedQueue:
        """What is known of a queue that is gone."""
        ...

    async def counts(self, queue_ids: Sequence[int]) -> Mapping[int, QueueCounts]:
        """Exact counts per state of these queues."""
        ...

    async def total(self, queue_id: int) -> int:
        """How many messages the queue holds, in whatever state, exactly; cheaper than its counts."""
        ...


class ApiKeyStore(Protocol):
    """The API keys."""

    async def add(self, key: ApiKey, max_live: int) -> bool:
        """Store a key unless its principal already has `most_live` live ones; whether its secret is stored now.

        A secret that is there already stays as it is, live or ended: of several servers that adopt one, all succeed.
        """
        ...

    async def by_hash(self, secret_hash: bytes) -> ApiKey | None:
        """The key whose secret has this SHA-256."""
        ...

    async def list_all(self) -> list[ApiKey]:
        """Every key, oldest first."""
        ...

    async def revoke(self, key_id: str) -> bool:
        """End a key now; whether there was such a live key."""
        ...

    async def record_use(self, key_ids: Sequence[str]) -> None:
        """Note that these keys were used now."""
        ...

    async def has_live(self) -> bool:
        """Whether there is a live key at all."""
        ...
