"""Runs a statement for the entries of many callers, or its form for a single one."""

from collections.abc import Sequence
from typing import Any

from app.store.records.database import SqlSession
from app.store.records.rows import Row


async def fetch_entries(
    session: SqlSession, name: str, columns: Sequence[str], entries: Sequence[Row], **shared: Any
) -> Sequence[Row]:
    """Return the rows of a statement over these entries, whose values are in the order of `columns`.

    Several entries become one array a column. A single entry becomes scalars of the statement `<name>_one`. `shared` are
    the parameters that all entries have in common.
    """
    if len(entries) == 1:
        return await session.fetch(f"{name}_one", **dict(zip(columns, entries[0], strict=True)), **shared)
    return await session.fetch(name, **dict(zip(columns, zip(*entries, strict=True), strict=True)), **shared)
