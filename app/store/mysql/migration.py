"""Runs migrations on MariaDB and MySQL."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from app.domain.refusals import StoreUnavailable
from app.store.mysql.connect import NEEDS_CRYPTOGRAPHY, driver_options
from app.store.url import BadStoreUrl, StoreUrl

LOCK_NAME = "peeklock migrations"

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


def lock(connection: Connection, timeout_seconds: int) -> None:
    """Lock out other migrations until the connection ends. Refuses with `StoreUnavailable` after the timeout."""
    # The lock's name is valid server-wide, so it contains the database. A name has at most 64 characters.
    query = text("SELECT GET_LOCK(CONCAT(:name, ' ', MD5(DATABASE())), :seconds)")
    if connection.execute(query, {"name": LOCK_NAME, "seconds": timeout_seconds}).scalar() != 1:
        raise StoreUnavailable(f"Another process has been migrating this database for {timeout_seconds} s.")
