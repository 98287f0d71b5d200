"""The complete store, and what it says about its database."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from app.broker.ports.access import ApiKeyStore, SessionStore
from app.broker.ports.archive import ArchiveStore
from app.broker.ports.browsing import BrowsingStore
from app.broker.ports.maintaining import MaintainingStore
from app.broker.ports.move_tasks import MoveTaskStore
from app.broker.ports.queues import QueueStore
from app.broker.ports.receiving import ReceivingStore
from app.broker.ports.sending import SendingStore
from app.broker.ports.settling import Admitted, SettlingStore
from app.broker.ports.states import StateStore
from app.broker.ports.topics import TopicStore
from app.broker.ports.transactions import TransactionStore
from app.domain.instant import Instant
from app.domain.settlement import Move


class StoreDatabase(Protocol):
    """The database of a store: its clock, its durability, and the numbers that it gives out."""

    async def now(self) -> Instant:
        """Return the store's clock; this is also the cheapest check that the store answers."""
        ...

    @property
    def engine(self) -> str:
        """The engine: `sqlite`, `postgresql`, or `mysql` for MySQL and MariaDB."""
        ...

    async def durability_risks(self) -> list[str]:
        """Return a sentence for each reason why it may lose an acknowledged message, as the database is set now."""
        ...

    async def is_replicated(self) -> bool:
        """Return whether changes are acknowledged only once synchronous standbys have them on disk, as the database is set now."""
        ...

    async def schema_revision(self) -> str | None:
        """Return the last migration of its tables, or None if it has no tables yet."""
        ...

    async def check_writable(self) -> None:
        """Raise `StoreUnavailable` with the reason if the store accepts no writes. Cheap while it does."""
        ...

    async def database_id(self) -> str:
        """Return an id that is unique to this database, except for copies of it."""
        ...

    async def highest_number(self) -> int:
        """Return the highest sequence number that was given out, also to messages that are gone or were never stored."""
        ...

    async def continue_after(self, number: int, count: int) -> int | None:
        """If `number` was not given out yet, skip all numbers up to `number + count`, and skip ids of queues too.

        Return the next number, or None if nothing had to be skipped. Concurrent callers skip the same numbers.
        """
        ...

    async def skip_numbers(self, count: int) -> int:
        """Skip the next `count` sequence numbers, and ids of queues too. Return the next number."""
        ...

    def seen(self) -> Mapping[str, int]:
        """Return the highest values that this process has seen, such as the timeline of a PostgreSQL system, by name."""
        ...

    def learn(self, seen: Mapping[str, int]) -> None:
        """Learn the values that other processes have seen. Connections to a server with a lower value are closed."""
        ...


class Store(
    SendingStore,
    ReceivingStore,
    SettlingStore,
    BrowsingStore,
    MaintainingStore,
    StoreDatabase,
    Protocol,
):
    """An open message store.

    `archive`, `queues`, `moves`, `topics`, `transactions`, `keys`, `sessions` and `states` share its connections. When the store releases messages of a caller that has disconnected, it calls `on_moved` with the moves and with
    whether each took effect. When messages become available because others have left their group, it calls
    `on_admitted` with them.
    """

    on_moved: Callable[[Sequence[Move], Sequence[bool]], None]
    on_admitted: Callable[[Sequence[Admitted]], None]

    @property
    def archive(self) -> ArchiveStore:
        """The archive."""
        ...

    @property
    def queues(self) -> QueueStore:
        """The queues."""
        ...

    @property
    def moves(self) -> MoveTaskStore:
        """The move tasks."""
        ...

    @property
    def transactions(self) -> TransactionStore:
        """The transactions of clients."""
        ...

    @property
    def keys(self) -> ApiKeyStore:
        """The API keys."""
        ...

    @property
    def sessions(self) -> SessionStore:
        """The sessions of people."""
        ...

    @property
    def states(self) -> StateStore:
        """The versioned states."""
        ...

    @property
    def topics(self) -> TopicStore:
        """The topics and their subscriptions."""
        ...

    async def acquire_exclusive(self) -> list[str]:
        """Register as the only process on the database (no shared lock store); refused if another is registered.

        Returns warnings for operators, the `durability_risks` among them.
        """
        ...

    async def acquire_shared(self) -> list[str]:
        """Register as one of several processes with a shared lock store; refused if one is registered as exclusive.

        The first of them starts a lock version, also when it registers again because its connection was lost. Behind a pooler
        each one does. Returns warnings as `acquire_exclusive` does.
        """
        ...

    async def close(self) -> None:
        """Run the gathered statements and close the connections."""
        ...
