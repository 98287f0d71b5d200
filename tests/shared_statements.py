"""A store on PostgreSQL that also serves a single caller by the statements for many."""

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
from app.store.records.database import BatchObserver
from app.store.records.rows import Row
from tests.changed_stores import open_postgresql

ARRAY = re.compile(r":([a-z_]+)::[a-z]+\[\]")


class SharedStatementSession(PostgresqlSession):
    """A session that runs the statement for many callers instead of its form for one."""

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """See `PostgresqlSession`."""
        if not name.endswith("_one"):
            return await super().fetch(name, **values)
        shared = name.removesuffix("_one")
        if shared == "claim":
            values = _claim_values(values)
        arrays = _arrays(shared)
        return await super().fetch(
            shared, **{key: [value] if key in arrays else value for key, value in values.items()}
        )


def _claim_values(values: Mapping[str, Any]) -> dict[str, Any]:
    no_floor = {"floor_time": None, "floor_number": None}
    return {
        **values,
        **no_floor,
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
