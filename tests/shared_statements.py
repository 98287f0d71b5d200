"""Stores on PostgreSQL that run other forms of a statement: the one for many callers, and the one that records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from app.domain.weight import MAX_RESPONSE_BYTES
from app.runtime.clock import Clock
from app.store.postgresql.dialect import DIALECT
from app.store.postgresql.session import PostgresqlSession
from app.store.postgresql.store import PostgresqlStore
from app.store.shared.database import BatchObserver
from app.store.shared.rows import Row
from tests.changed_stores import open_postgresql

ARRAY = re.compile(r":([a-z_]+)::[a-z]+\[\]")


class SharedStatementSession(PostgresqlSession):
    """A session that runs the statement for many callers instead of its form for one."""

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """See `PostgresqlSession`."""
        if not name.endswith("_one"):
            return await super().fetch(name, **values)
        shared = name.removesuffix("_one")
        if shared.startswith("claim"):
            values = _claim_values(values)
        arrays = _arrays(shared)
        return await super().fetch(
            shared, **{key: [value] if key in arrays else value for key, value in values.items()}
        )


def _recorded_name(name: str) -> str:
    """Return the name of the statement that also records what this one does, or the name itself if none does."""
    recorded = f"{name.removesuffix('_one')}_recorded"
    if recorded not in DIALECT.statements:
        return name
    return f"{recorded}_one" if name.endswith("_one") else recorded


class RecordedStatementSession(PostgresqlSession):
    """A session that runs the statement of queues with a history for all queues."""

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """See `PostgresqlSession`."""
        return await super().fetch(_recorded_name(name), **values)


class SharedRecordedStatementSession(SharedStatementSession):
    """A session that runs that statement for many callers instead of its form for one."""

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """See `PostgresqlSession`."""
        return await super().fetch(_recorded_name(name), **values)


def _claim_values(values: Mapping[str, Any]) -> dict[str, Any]:
    no_bound = {"bound_time": None, "bound_number": None}
    return {
        **values,
        **no_bound,
        "max_messages": 1,
        "slots_before": 0,
        "secrets": values["secret"],
        "budget": MAX_RESPONSE_BYTES,
    }


@cache
def _arrays(name: str) -> frozenset[str]:
    return frozenset(ARRAY.findall(DIALECT.statements[name].text))


async def open_shared(url: str, clock: Clock, observe: BatchObserver) -> PostgresqlStore:
    """Open the store at this address."""
    return await open_postgresql(url, clock, observe, DIALECT.statements, SharedStatementSession)
