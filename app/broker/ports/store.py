"""A message store as a whole."""

from collections.abc import Callable, Sequence
from typing import Protocol

from app.broker.ports.archive_store import ArchiveStore
from app.broker.ports.maintenance_store import MaintenanceStore
from app.broker.ports.message_store import MessageStore
from app.broker.ports.queue_store import ApiKeyStore, QueueStore
from app.domain.instant import Instant
from app.domain.settlement import Move


class Store(MessageStore, MaintenanceStore, Protocol):
    """An open message store. `archive`, `queues` and `keys` share its connections.

    `on_moved` hears of moves that the store makes by itself, to give back what was claimed for a caller that has
    gone, and of which of them took effect.
    """

    on_moved: Callable[[Sequence[Move], Sequence[bool]], None]

    @property
    def archive(self) -> ArchiveStore:
        """What has ended."""
        ...

    @property
    def queues(self) -> QueueStore:
        """The queues it keeps."""
        ...

    @property
    def keys(self) -> ApiKeyStore:
        """The API keys it keeps."""
        ...

    async def now(self) -> Instant:
        """The store's clock; also the cheapest proof that it answers."""
        ...

    async def database_id(self) -> str:
        """What tells this database from every other one, except from its own copies."""
        ...

    async def schema_revision(self) -> str | None:
        """The migration that made its tables what they are; None where it has no tables yet."""
        ...

    async def acquire_exclusive(self) -> list[str]:
        """Serve the database as the only process, for one without a shared lock store; refused beside another.

        Answers a warning for each way in which the database is set to lose what it has acknowledged.
        """
        ...

    async def acquire_shared(self) -> list[str]:
        """Serve the database beside others that share the lock store; refused beside one that is alone."""
        ...

    async def close(self) -> None:
        """Finish what is gathered and let the connections go."""
        ...
