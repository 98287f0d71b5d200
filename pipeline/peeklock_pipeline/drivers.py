"""The drivers of the databases that may hold an archive: each returns the result of a query as Arrow batches.

They return whole columns: ADBC for PostgreSQL and SQLite, ConnectorX for MariaDB and MySQL.
"""

import socket
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, assert_never
from urllib.parse import quote, urlsplit

import pyarrow as pa

CHUNK_BYTES = 64 << 20
"""About how many bytes of a result are in memory at a time, independent of the size of bodies."""

CHUNK_ROWS = 10_000
"""Rows per chunk for drivers that do not count bytes."""

CONNECT_SECONDS = 10


class Engine(StrEnum):
    """The databases that may hold an archive."""

    POSTGRESQL = "postgresql"
    MYSQL = "mysql"
    SQLITE = "sqlite"


def query(engine: Engine, url: str, columns: Mapping[str, str], source: str) -> Iterator[pa.RecordBatch]:
    """Query a database for columns, each given with an empty value of its type.

    Yields at least one batch, which may have no rows. Raises what the driver raises.
    """
    match engine:
        case Engine.POSTGRESQL:
            return _query_postgresql(url, columns, source)
        case Engine.MYSQL:
            return _query_mysql(url, columns, source)
        case Engine.SQLITE:
            return _query_sqlite(url, columns, source)
        case _:
            assert_never(engine)


def merge_batches(answer: Iterable[pa.RecordBatch], max_bytes: int = CHUNK_BYTES) -> Iterator[pa.Table]:
    """Merge neighbouring batches into tables of about `max_bytes` bytes, at least one table."""
    pending: list[pa.RecordBatch] = []
    size = given = 0
    for batch in answer:
        pending.append(batch)
        size += batch.nbytes
        if size >= max_bytes:
            yield pa.Table.from_batches(pending)
            pending, size, given = pending[:0], 0, given + 1
    if pending or not given:
        yield pa.Table.from_batches(pending)


def _query_postgresql(url: str, columns: Mapping[str, str], source: str) -> Iterator[pa.RecordBatch]:
    import adbc_driver_postgresql.dbapi as driver

    address = f"{url}{'&' if '?' in url else '?'}connect_timeout={CONNECT_SECONDS}"
    with driver.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(columns)} {source}")
        yield from _batches(cursor.fetch_record_batch())


def _query_sqlite(path: str, columns: Mapping[str, str], source: str) -> Iterator[pa.RecordBatch]:
    """Query SQLite. The driver infers the type of a column from its first values, so the first row has all values."""
    import adbc_driver_sqlite.dbapi as driver

    if not Path(path).is_file():
        raise FileNotFoundError("no file with this name exists")
    example = ", ".join(f"{empty} AS {name}" for name, empty in columns.items())
    query = f"SELECT {example} UNION ALL SELECT * FROM (SELECT {', '.join(columns)} {source})"
    with driver.connect(f"file:{quote(path)}?mode=ro") as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(CHUNK_ROWS)})
        cursor.execute(query)
        for number, batch in enumerate(cursor.fetch_record_batch()):
            yield batch if number else batch.slice(1)


def _query_mysql(url: str, columns: Mapping[str, str], source: str) -> Iterator[pa.RecordBatch]:
    import connectorx

    address = urlsplit(url)
    # Fail at once if no server listens, because the driver retries for half a minute.
    socket.create_connection((address.hostname or "localhost", address.port or 3306), CONNECT_SECONDS).close()
    query = f"SELECT {', '.join(columns)} {source}"
    answer: Any = connectorx.read_sql(url, query, return_type="arrow_stream", protocol="binary", batch_size=CHUNK_ROWS)
    yield from _batches(answer)


def _batches(answer: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield a batch without rows first, then what the driver reads, because an empty result has columns too."""
    yield pa.RecordBatch.from_pylist([], answer.schema)
    yield from answer
