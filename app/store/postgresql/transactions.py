"""The steps of transactions on PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.broker.ports import Extension
from app.store.postgresql.entries import entry_columns
from app.store.postgresql.session import PostgresqlSession
from app.store.postgresql.settling import extend_and_record


async def add_members(session: PostgresqlSession, members: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows of members."""
    columns = tuple(members[0])
    await session.change("add_members", **entry_columns(columns, [tuple(member.values()) for member in members]))


async def extend(session: PostgresqlSession, extensions: Sequence[Extension]) -> list[bool]:
    """Extend locks, and record it. Return whether each fence held."""
    return [row is not None for row in await extend_and_record(session, extensions)]
