"""Runs migrations on SQLite."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, StaticPool

from app.store.sqlite import file
from app.store.sqlite.file import make_private, refuse_second_name, translate_errors
from app.store.url import StoreUrl

BUSY_SECONDS = 120
"""How long a migration waits for another process to finish its own."""

Result = TypeVar("Result")


def run(url: StoreUrl, work: Callable[[Connection], Result]) -> Result:
    """Run the work on a connection to the file, as its only writer. What the work does not commit is undone."""
    if url.path:
        make_private(url.path)
        refuse_second_name(url.path)
    address = URL.create("sqlite", database=str(url.path) if url.path else None)
    engine = create_engine(address, poolclass=NullPool, connect_args={"timeout": BUSY_SECONDS})
    try:
        return _run(engine, work)
    except DBAPIError as error:
        with suppress(sqlite3.Error), translate_errors(url.path):
            raise error.orig or error from None
        raise


def run_on(connection: sqlite3.Connection, work: Callable[[Connection], Result]) -> Result:
    """Run the work on an open connection, the only way to reach a database in memory."""
    return _run(create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool), work)


def prepare(_connection: Connection, _try_seconds: int, _wait_seconds: int) -> None:
    """Do nothing: the transaction has begun as the only writer, and readers never wait for it."""


def refuse_served(connection: Connection) -> None:
    """See `Migration`. The statements of a running server would wait for the migration, so the server must be stopped first."""
    if path := connection.engine.url.database:
        file.refuse_served(Path(path))


def is_lock_timeout(_error: DBAPIError) -> bool:
    """See `Migration`. A step that is the only writer waits for no lock."""
    return False


def blocking_session(_connection: Connection) -> str:
    """See `Migration`."""
    return "another process writes to the file"


def _run(engine: Engine, work: Callable[[Connection], Result]) -> Result:
    # The driver begins no transaction before statements that create tables, so those could not be undone.
    def disable_autobegin(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", disable_autobegin)
    event.listen(engine, "begin", begin)
    with engine.connect() as connection:
        return work(connection)
