"""The complete store: messages, archive, queues, topics and keys."""

from collections.abc import Callable, Sequence
from typing import Protocol

from app.broker.ports.archive_store import ArchiveStore
from app.broker.ports.explain_store import ExplainStore
from app.broker.ports.history_store import HistoryStore
from app.broker.ports.maintenance_store import MaintenanceStore
from app.broker.ports.message_store import Admitted, MessageStore
from app.broker.ports.queue_store import ApiKeyStore, QueueStore
from app.broker.ports.session_store import SessionStore
from app.broker.ports.shared_record import ObservedStore
from app.broker.ports.state_store import StateStore
from app.broker.ports.synchronous_send_store import EndSynchronousSendStore, SynchronousSendStore
from app.broker.ports.topic_store import TopicStore
from app.broker.ports.transaction_store import TransactionStore
from app.domain.instant import Instant
from app.domain.settlement import Move


class StoreClock(Protocol):
    """The clock of the store."""

    async def now(self) -> Instant:
        """Return the store's clock; this is also the cheapest check that the store answers."""
        ...


class StoreDescription(Protocol):
    """What a store says about itself."""

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


class SequenceNumbers(Protocol):
    """The numbers that a store gives out."""

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


class StoreReadiness(Protocol):
    """Whether a store accepts writes."""

    async def check_writable(self) -> None:
        """Raise `StoreUnavailable` with the reason if the store accepts no writes. Cheap while it does."""
        ...


class Store(
    MessageStore,
    MaintenanceStore,
    ExplainStore,
    HistoryStore,
    SynchronousSendStore,
    EndSynchronousSendStore,
    StoreClock,
    StoreDescription,
    SequenceNumbers,
    StoreReadiness,
    ObservedStore,
    Protocol,
):
    """An open message store. `archive`, `queues`, `topics`, `transactions`, `keys`, `sessions` and `states` share its connections.

    When the store releases messages of a caller that has disconnected, it calls `on_moved` with the moves and with
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

    async def database_id(self) -> str:
        """Return an id that is unique to this database, except for copies of it."""
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
