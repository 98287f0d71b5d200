"""Opens stores whose statements, or whose way to run them, a test has changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing

from app.runtime.clock import Clock
from app.store.mysql.connect import Connector
from app.store.mysql.session import MysqlSession
from app.store.mysql.store import MysqlStore
from app.store.mysql.templates import template
from app.store.pooled.advisory_lock import AdvisoryLock
from app.store.pooled.pool import Pool
from app.store.postgresql.connect import connect, parse_address
from app.store.postgresql.dialect import DIALECT as POSTGRESQL
from app.store.postgresql.session import PostgresqlSession, PreparedStatement
from app.store.postgresql.store import PostgresqlStore
from app.store.shared.database import BatchObserver
from app.store.shared.statements import Statement
from app.store.sqlite.database import SqliteDatabase
from app.store.sqlite.store import SqliteStore

CONNECTIONS = 8


async def open_sqlite(
    url: str, clock: Clock, observe: BatchObserver, statements: Mapping[str, Statement]
) -> SqliteStore:
    """Open a store in memory with the tables and rows of the file that the URL names."""
    database = SqliteDatabase(None, clock, observe, statements)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        await database.call_on_writer(file.backup)
    return SqliteStore(database)


async def open_postgresql(
    url: str,
    clock: Clock,
    observe: BatchObserver,
    statements: Mapping[str, Statement],
    session_class: type[PostgresqlSession] = PostgresqlSession,
) -> PostgresqlStore:
    """Open the store at this address with these statements."""
    prepared = {name: PreparedStatement(statement) for name, statement in statements.items()}

    async def new_session() -> PostgresqlSession:
        return session_class(await connect(parse_address(url)), prepared)

    return PostgresqlStore(Pool(new_session, CONNECTIONS), AdvisoryLock(new_session, clock), clock, observe)


LONG_LOCK_WAIT = 14
"""Seconds. A statement is cancelled after 15, even if it waits for a lock."""


class PatientConnector(Connector):
    """Opens connections whose statements wait long for a row that another transaction holds."""

    async def __call__(self) -> MysqlSession:
        """See `Connector`."""
        session = await super().__call__()
        await session.execute(b"SET SESSION innodb_lock_wait_timeout = %d" % LONG_LOCK_WAIT)
        return session


async def open_patient(url: str, clock: Clock, observe: BatchObserver) -> PostgresqlStore | MysqlStore:
    """Open a store whose statements wait long for a row that another transaction holds, unless they say otherwise.

    On a store as it is served, a request that is only slow takes as long as one that waits.
    """
    if url.startswith("mysql"):
        connector = PatientConnector(url)
        return MysqlStore(Pool(connector, CONNECTIONS), AdvisoryLock(connector, clock), clock, observe)
    prepared = {name: PreparedStatement(statement) for name, statement in POSTGRESQL.statements.items()}

    async def new_session() -> PostgresqlSession:
        connection = await connect(parse_address(url))
        await connection.execute(f"SET lock_timeout = '{LONG_LOCK_WAIT}s'")
        return PostgresqlSession(connection, prepared)

    return PostgresqlStore(Pool(new_session, CONNECTIONS), AdvisoryLock(new_session, clock), clock, observe)


async def open_mysql(url: str, clock: Clock, observe: BatchObserver, statements: Mapping[str, Statement]) -> MysqlStore:
    """Open the store at this address with these statements."""
    connector = Connector(url, {name: template(statement) for name, statement in statements.items()})
    return MysqlStore(Pool(connector, CONNECTIONS), AdvisoryLock(connector, clock), clock, observe)
