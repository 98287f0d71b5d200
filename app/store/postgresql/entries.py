"""Runs a statement for the entries of many callers, or its form for a single one."""

from collections.abc import Sequence
from typing import Any

from app.store.shared.database import SqlSession
from app.store.shared.rows import Row


async def fetch_entries(
    session: SqlSession, name: str, columns: Sequence[str], entries: Sequence[Row], **shared: Any
) -> Sequence[Row]:
    """Return the rows of a statement over these entries, whose values are in the order of `columns`.

    Several entries become one array a column. A single entry becomes scalars of the statement `<name>_one`. `shared` are
    the parameters that all entries have in common.
    """
    if len(entries) == 1:
        return await session.fetch(f"{name}_one", **dict(zip(columns, entries[0], strict=True)), **shared)
    return await session.fetch(name, **entry_columns(columns, entries), **shared)


def entry_columns(columns: Sequence[str], entries: Sequence[Row]) -> dict[str, Sequence[Any]]:
    """Return the entries as one array a column, for the macro `@table`. At least one array has a value for each entry."""
    arrays = list(zip(*entries, strict=True))
    shortened = [short_array(array) for array in arrays]
    if max(map(len, shortened)) < len(entries):
        shortened[0] = arrays[0]
    return dict(zip(columns, shortened, strict=True))


def short_array(array: Sequence[Any]) -> Sequence[Any]:
    """Return an array of one value in place of equal values, and an empty one in place of nulls.

    The driver spends ten times as long on each value of an array as this comparison does.
    """
    first = array[0]
    if array[-1] != first or array.count(first) != len(array):
        return array
    return () if first is None else (first,)
