"""Runs migrations on PostgreSQL."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.store.postgresql.session import DriverConnection, connect, parse_address
from app.store.url import StoreUrl

# The letters of "peeklock". PostgreSQL's advisory lock takes any number that no other program uses.
LOCK_NUMBER = int.from_bytes(b"peeklock")

Result = TypeVar("Result")


def run(url: StoreUrl, work: Callable[[Connection], Result]) -> Result:
    """Run the work on a connection and an event loop of its own. What the work does not commit is undone."""
    return asyncio.run(_run(url, work))


async def _run(url: StoreUrl, work: Callable[[Connection], Result]) -> Result:
    # Use the driver of the service, which reads the URL as the service does.
    async def open_connection() -> DriverConnection:
        return await connect(parse_address(url.text))

    engine = create_async_engine("postgresql+asyncpg://", async_creator=open_connection, poolclass=NullPool)
    async with engine.connect() as connection:
        return await connection.run_sync(work)


def lock(connection: Connection, timeout_seconds: int) -> None:
    """Lock out other migrations until the transaction ends."""
    # The service's timeouts are for statements that take milliseconds.
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
    connection.execute(text(f"SET LOCAL lock_timeout = '{timeout_seconds}s'"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK_NUMBER})
