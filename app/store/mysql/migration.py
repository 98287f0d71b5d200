"""Runs migrations on MariaDB and MySQL."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from app.domain.refusals import StoreUnavailable
from app.store.mysql.connect import NEEDS_CRYPTOGRAPHY, driver_options
from app.store.url import BadStoreUrl, StoreUrl

LOCK_NAME = "peeklock migrations"

LOCK_TIMEOUTS = {1205, 1213}
"""The errors for a timeout of a lock on a row or on a table's definition, and for a deadlock with a server's statement."""

UNKNOWN_SESSION = "a session with an open transaction uses a table that the migration changes"
"""The clause if the role may not see the transactions of others."""

OLDEST_TRANSACTION = """
SELECT trx.trx_mysql_thread_id, process.user, process.host, trx.trx_started
FROM information_schema.innodb_trx AS trx
JOIN information_schema.processlist AS process ON process.id = trx.trx_mysql_thread_id
WHERE process.db = DATABASE() AND process.id <> CONNECTION_ID()
ORDER BY trx.trx_started
LIMIT 1
"""

Result = TypeVar("Result")


def run(url: StoreUrl, work: Callable[[Connection], Result]) -> Result:
    """Run the work on a connection of its own. Refuses with `BadStoreUrl` the same options as the service."""
    driver_options(url.text)
    engine = create_engine(make_url(url.text).set(drivername="mysql+pymysql"), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            return work(connection)
    except RuntimeError as error:
        if "cryptography" not in str(error):
            raise
        raise BadStoreUrl(NEEDS_CRYPTOGRAPHY) from error


def prepare(connection: Connection, try_seconds: int, wait_seconds: int) -> None:
    """Lock out other migrations until the connection ends, and limit how long a step waits for a lock.

    Every step commits, so it holds no lock while the next one waits. Columns and indexes are added while servers write.
    """
    # The lock's name is valid server-wide, so it contains the database. A name has at most 64 characters.
    query = text("SELECT GET_LOCK(CONCAT(:name, ' ', MD5(DATABASE())), :seconds)")
    if connection.execute(query, {"name": LOCK_NAME, "seconds": wait_seconds}).scalar() != 1:
        raise StoreUnavailable(f"Another process has been migrating this database for {wait_seconds} s.")
    # The first limit is for locks on a table's definition. The servers' default is a day or more.
    connection.execute(
        text("SET SESSION lock_wait_timeout = :seconds, SESSION innodb_lock_wait_timeout = :seconds"),
        {"seconds": try_seconds},
    )


def refuse_served(_connection: Connection) -> None:
    """See `Migration`. Refuses nothing: servers may run during a migration."""


def is_lock_timeout(error: DBAPIError) -> bool:
    """See `Migration`."""
    return error.orig is not None and error.orig.args[:1] in [(number,) for number in LOCK_TIMEOUTS]


def blocking_session(connection: Connection) -> str:
    """See `Migration`."""
    try:
        oldest = connection.execute(text(OLDEST_TRANSACTION)).first()
    except DBAPIError:
        return UNKNOWN_SESSION
    if oldest is None:
        return UNKNOWN_SESSION
    number, user, host, began_at = oldest
    return f"session {number} (user {user}, from {host}) has a transaction open since {began_at:%Y-%m-%d %H:%M:%S}"
