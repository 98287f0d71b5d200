"""What a store asks of an engine: sessions, and a database that lends them."""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias, TypeVar

from app.domain.refusals import StoreUnavailable
from app.runtime.coalescer import BatchInterruptedError, CoalescerClosedError
from app.store.records.rows import Row

Result = TypeVar("Result")

BatchObserver: TypeAlias = Callable[[str, int], None]
"""Hears the name of what was run, and for how many callers at once."""


class SqlSession(Protocol):
    """Where named statements run, each with its parameters by name."""

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """The rows of a statement that gives rows, by position."""
        ...

    async def change(self, name: str, /, **values: Any) -> int:
        """Run a statement that gives no rows; how many rows it found to change, also those left as they were."""
        ...


Work: TypeAlias = Callable[[SqlSession], Awaitable[Result]]
"""Statements that belong together. Awaits nothing but the session, and has no other effect: it may be run again."""


class Database(SqlSession, Protocol):
    """An engine's connections. On its own, `fetch` or `change` is a transaction; `@now` is supplied by the engine.

    Errors that repeating heals (deadlock, serialization) are repeated a few times; what says that the database
    cannot answer is raised as `StoreUnavailable`.
    """

    async def transaction(self, work: Work[Result]) -> Result:
        """Run the work in one transaction, committed durably when it returns and undone when it raises."""
        ...


@contextmanager
def unavailable_when_closed() -> Generator[None]:
    """Raise `StoreUnavailable` for what is asked of a coalescer while the store closes or after it has closed."""
    try:
        yield
    except CoalescerClosedError as error:
        raise StoreUnavailable("The store is closed.") from error
    except BatchInterruptedError as error:
        raise StoreUnavailable("The store was closed in the middle of a transaction.") from error
