"""Reads the archive of a Peeklock database: its sealed batches, and its rows as Arrow tables.

A `Database` holds no connection, so it can be sent to executors.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from peeklock_pipeline.conditions import Condition
from peeklock_pipeline.content_columns import (
    AUDIT_SKIPPED_COLUMNS,
    HASHED_COLUMNS,
    name_in_batch,
    value_in_batch,
    value_in_queue,
)
from peeklock_pipeline.drivers import Engine, merge_batches, query
from peeklock_pipeline.histories import EVENT_VALUES, SEALED_EVENT, ranges_of_events, with_histories, without_history
from peeklock_pipeline.refusals import BadDatabaseUrl, DatabaseUnavailable
from peeklock_pipeline.table_specs import (
    ACCOUNTS,
    ARCHIVE,
    ARCHIVE_COLUMNS,
    CODES,
    EVENTS,
    HISTORY,
    MESSAGES,
    ROW_CHECKSUM,
    STORED_ROWS,
    TableSpec,
    to_lake_table,
    with_every_column,
)

EXAMPLES = "postgresql://user:password@host/database, mysql://user:password@host/database or sqlite:///file"

NO_ARCHIVE = re.compile(
    r"""relation "\w+" does not exist|column "?[\w.]+"? does not exist|\(42S02\)|\(42S22\)|no such"""
)
"""The error texts of the engines for a missing table or column."""


SCHEMES = {
    "postgresql": Engine.POSTGRESQL,
    "postgres": Engine.POSTGRESQL,
    "mysql": Engine.MYSQL,
    "mariadb": Engine.MYSQL,
    "sqlite": Engine.SQLITE,
}


@dataclass(frozen=True, slots=True)
class Batch:
    """A sealed batch of archived messages, which never changes and is removed only as a whole.

    `digest` is of the sequence numbers where `digest_version` is 1, of every exported column where it is 2 or 3, as
    `transforms/audit.py` computes both. `removed_at` is None while the archive has the rows. Times are microseconds
    since 1970.
    """

    number: int
    rows: int
    digest: str
    sealed_at: int
    removed_at: int | None
    digest_version: int = 1


@dataclass(frozen=True, slots=True)
class PendingBatches:
    """The batches that a lake does not have yet: how many, their messages, the last one, and when the first was sealed.

    Without any, `last` is the last batch of the lake, and `sealed_at` is None.
    """

    batches: int
    rows: int
    last: int
    sealed_at: int | None


@dataclass(frozen=True, slots=True)
class Database:
    """A database, by its URL."""

    url: str
    engine: Engine

    @classmethod
    def from_url(cls, url: str) -> "Database":
        """Return the database of a URL in the server's format. Refuses with `BadDatabaseUrl`, which shows no
        password."""
        scheme = url.partition("://")[0] if "://" in url else ""
        if scheme not in SCHEMES:
            raise BadDatabaseUrl(
                f"A database URL looks like {EXAMPLES}; this one begins with {scheme or 'none of them'}."
            )
        try:
            place = urlsplit(url)
            _ = place.port
        except ValueError:
            raise BadDatabaseUrl(
                "The database URL cannot be parsed: percent-encode the special characters of its password."
            ) from None
        if not place.path.strip("/"):
            raise BadDatabaseUrl(f"The database URL names no database; it looks like {EXAMPLES}.")
        if SCHEMES[scheme] is not Engine.SQLITE:
            return cls(f"{SCHEMES[scheme]}{url.removeprefix(scheme)}", SCHEMES[scheme])
        if place.netloc:
            raise BadDatabaseUrl(f"A SQLite file has no host; write sqlite:///{place.netloc}{place.path}.")
        # Make the path absolute, because an executor may have another working directory.
        return cls(str(Path(unquote(place.path[1:])).absolute()), Engine.SQLITE)

    @property
    def name(self) -> str:
        """The URL without its password."""
        place = urlsplit(self.url)
        port = f":{place.port}" if place.port else ""
        return self.url if self.engine is Engine.SQLITE else f"{place.hostname}{port}{place.path}"

    def batches(self, after: int = 0, last: int | None = None, most: int | None = None) -> list[Batch]:
        """Return the sealed batches after a number, up to the last one or to a given one, in order, at most that many.

        Refuses with `DatabaseUnavailable`.
        """
        within = f"number > {int(after)}" + ("" if last is None else f" AND number <= {int(last)}")
        limit = "" if most is None else f" LIMIT {int(most)}"
        found = pa.concat_tables(self._query(BATCHES, f"FROM export_batch WHERE {within} ORDER BY number{limit}"))
        return [Batch(*row) for row in zip(*(column.to_pylist() for column in found.columns), strict=True)]

    def pending(self, after: int) -> PendingBatches:
        """Return how much was sealed after a batch. Refuses with `DatabaseUnavailable`."""
        integer = "SIGNED" if self.engine is Engine.MYSQL else "BIGINT"
        sums = (
            f"COUNT(*) AS batches, CAST(SUM(row_count) AS {integer}) AS messages, MAX(number) AS last_batch, "
            "MIN(sealed_at) AS first_sealed_at"
        )
        counted = f"FROM (SELECT {sums} FROM export_batch WHERE number > {int(after)}) AS counted WHERE batches > 0"
        columns: dict[str, str] = dict.fromkeys(("batches", "messages", "last_batch", "first_sealed_at"), NUMBER)
        found = pa.concat_tables(self._query(columns, counted)).to_pylist()
        return PendingBatches(*map(int, found[0].values())) if found else PendingBatches(0, 0, after, None)

    def shortest_retention(self, first: int) -> int | None:
        """Return the shortest time in microseconds between seal and removal of batches from this number on.

        None without such a batch. Refuses with `DatabaseUnavailable`.
        """
        shortest = f"SELECT MIN(remove_at - sealed_at) AS shortest FROM export_batch WHERE number >= {int(first)}"
        answer = self._query({"shortest": NUMBER}, f"FROM ({shortest}) AS kept WHERE shortest IS NOT NULL")
        return next(iter(pa.concat_tables(answer)["shortest"].to_pylist()), None)

    def last_batch(self, after: int = 0, most: int | None = None) -> int:
        """Return the last sealed batch, of the first `most` after a number; that number if none follows."""
        following = f"SELECT number FROM export_batch WHERE number > {int(after)}"
        if most is not None:
            following += f" ORDER BY number LIMIT {int(most)}"
        return (
            self._number(f"SELECT COALESCE(MAX(number), {int(after)}) AS number FROM ({following}) AS following") or 0
        )

    def first_kept_batch(self) -> int | None:
        """Return the first sealed batch of which the archive has the messages; None without any."""
        return self._number("SELECT number FROM export_batch WHERE removed_at IS NULL ORDER BY number LIMIT 1")

    def _number(self, statement: str) -> int | None:
        found = pa.concat_tables(self._query({"number": NUMBER}, f"FROM ({statement}) AS found")).to_pylist()
        return int(found[0]["number"]) if found else None

    def chunks(
        self,
        first: int,
        last: int,
        columns: Sequence[str] = ARCHIVE_COLUMNS,
        conditions: Sequence[Condition] = (),
    ) -> Iterator[pa.Table]:
        """Yield the messages of these sealed batches, inclusive, that meet the conditions, in tables that fit into memory.

        Histories need the column `sequence_number`. Refuses with `DatabaseUnavailable`, possibly after some tables.
        """
        if HISTORY not in columns:
            yield from self._sealed_messages(first, last, columns, conditions)
            return
        numbers = "".join(
            f" AND {condition.sql(name_in_seal)}" for condition in conditions if condition.column == "sequence_number"
        )
        within = f"FROM {SEALED_EVENT} b.number BETWEEN {int(first)} AND {int(last)}{numbers}"
        counted = f"FROM (SELECT b.number, COUNT(*) AS events {within} GROUP BY b.number ORDER BY b.number) AS counted"
        counts = pa.concat_tables(self._query({"number": NUMBER, "events": NUMBER}, counted))
        for begin, end in ranges_of_events(first, last, zip(*(c.to_pylist() for c in counts.columns), strict=True)):
            # Before the messages: if a batch is removed meanwhile, its messages are missing too, and that is noticed.
            events = pa.concat_tables(self._events(f"b.number BETWEEN {begin} AND {end}{numbers}"))
            for messages in self._sealed_messages(begin, end, without_history(columns), conditions):
                yield with_histories(messages, events)

    def events(self, first: int, last: int) -> Iterator[pa.Table]:
        """Yield the events of the messages of these sealed batches, inclusive, in tables that fit into memory."""
        return self._events(f"b.number BETWEEN {int(first)} AND {int(last)}")

    def _events(self, condition: str) -> Iterator[pa.Table]:
        chosen = f"FROM (SELECT {EVENT_VALUES} FROM {SEALED_EVENT} {condition}) AS chosen"
        return (to_lake_table(chunk, EVENTS) for chunk in self._query(_stored_columns(EVENTS), chosen))

    def _sealed_messages(
        self, first: int, last: int, columns: Sequence[str], conditions: Sequence[Condition]
    ) -> Iterator[pa.Table]:
        wanted = {name: kind for name, kind in _stored_columns(ARCHIVE).items() if name in columns}
        values = ", ".join(value_in_batch(name) for name in wanted)
        within = f"export_batch BETWEEN {int(first)} AND {int(last)}"
        older = " AND ".join([within, *(condition.sql() for condition in conditions)])
        newer = " AND ".join([f"s.{within}", *(condition.sql(name_in_batch) for condition in conditions)])
        sealed = f"SELECT {values} FROM archive_seal s JOIN {SEALED_MESSAGE} WHERE {newer}"
        # Two queries, because MariaDB would write the rows of a union into a temporary table.
        # Messages that refer to a body are in the table of the first.
        for source in (f"FROM ({sealed}) AS sealed", f"FROM archive WHERE {older}"):
            yield from (to_lake_table(chunk, ARCHIVE) for chunk in self._query(wanted, source))

    def read(self, first: int, last: int, columns: Sequence[str] = ARCHIVE_COLUMNS) -> pa.Table:
        """Return the messages of these sealed batches, inclusive. Refuses with `DatabaseUnavailable`."""
        return pa.concat_tables(self.chunks(first, last, columns))

    def select(self, columns: Mapping[str, str], source: str) -> Iterator[pa.Table]:
        """Yield columns of a query in at least one table. `columns` maps each to an empty value of its type, `source` begins
        with FROM. Refuses with `DatabaseUnavailable`."""
        return self._query(columns, source)

    def number_of_every(self, rows: int, counted: str) -> tuple[list[int], int]:
        """Return the number of every `rows`-th row of a query, in order from the lowest, and the highest number."""
        placed = f"SELECT number, ROW_NUMBER() OVER (ORDER BY number) AS place FROM ({counted}) AS counted"
        every = f"SELECT number FROM ({placed}) AS placed WHERE place % {int(rows)} = {1 % int(rows)} ORDER BY number"
        starts = pa.concat_tables(self._query({"number": NUMBER}, f"FROM ({every}) AS starts")).to_pylist()
        highest = f"SELECT COALESCE(MAX(number), 0) AS number FROM ({counted}) AS counted"
        return [int(row["number"]) for row in starts], self._number(highest) or 0

    def span(self) -> tuple[int, int] | None:
        """Return the lowest and highest sequence number of messages in queues and in the archive; None without
        messages."""
        ends = "MIN(sequence_number) AS low, MAX(sequence_number) AS high"
        both = f"SELECT {ends} FROM message UNION ALL SELECT {ends} FROM archive"
        answer = self._query({"low": NUMBER, "high": NUMBER}, f"FROM ({both}) AS ends WHERE low IS NOT NULL")
        rows = pa.concat_tables(answer).to_pylist()
        return (min(row["low"] for row in rows), max(row["high"] for row in rows)) if rows else None

    def messages(self, first: int, last: int) -> Iterator[pa.Table]:
        """Yield the messages in queues between these sequence numbers, inclusive, in tables that fit into memory."""
        wanted = _stored_columns(MESSAGES)
        held = (
            f"SELECT {', '.join(value_in_queue(name) for name in wanted)} "
            "FROM message m JOIN queue q ON q.id = m.queue_id "
            f"WHERE m.sequence_number BETWEEN {int(first)} AND {int(last)}"
        )
        return (to_lake_table(chunk, MESSAGES) for chunk in self._query(wanted, f"FROM ({held}) AS held"))

    def rows(self, first: int, last: int, after: int = 0) -> Iterator[pa.Table]:
        """Yield every message between these sequence numbers, inclusive, in queues and in the archive, without bodies.

        Leaves out messages of sealed batches up to `after`. A message that moves from a queue into the archive occurs once, because one statement reads both.
        """
        between = f"sequence_number BETWEEN {int(first)} AND {int(last)}"
        standing = f"CASE WHEN m.state = {CODES['state'].index('dead_lettered')} THEN 'dead_lettered' ELSE 'live' END"
        given = HASHED_COLUMNS[self.engine] | {"place": "'archive'", "standing": "outcome"}
        sealed = {"sequence_number": "a.sequence_number", "export_batch": BATCH_NUMBER}
        columns = {
            name: kind
            for name, kind in _stored_columns(STORED_ROWS).items()
            if name not in AUDIT_SKIPPED_COLUMNS[self.engine]
        }
        archive = ", ".join(f"{(given | sealed).get(name, name)} AS {name}" for name in columns)
        given |= {"queue": "q.name", "place": "'queue'", "standing": standing}
        queues = ", ".join(
            f"{given.get(name, name) if name in AUDITED_QUEUE_COLUMNS else 'NULL'} AS {name}" for name in columns
        )
        later = f" AND COALESCE({BATCH_NUMBER}, {int(after)} + 1) > {int(after)}" if after else ""
        both = (
            f"SELECT {archive} FROM archive a LEFT JOIN {SEAL} WHERE a.{between}{later} "
            f"UNION ALL SELECT {queues} FROM message m JOIN queue q ON q.id = m.queue_id WHERE {between}"
        )
        answer = self._query(columns, f"FROM ({both}) AS stored_rows")
        return (with_every_column(to_lake_table(chunk, STORED_ROWS), STORED_ROWS) for chunk in answer)

    def accounts(self, exported: int) -> Iterator[pa.Table]:
        """Yield what was accepted and what the database holds of it, without batches up to `exported` (`ACCOUNTS`).

        One statement reads all of it, so a message that moves between tables is neither missed nor counted twice.
        Refuses with `DatabaseUnavailable`.
        """
        day = "enqueued_at {} 86400000000".format("DIV" if self.engine is Engine.MYSQL else "/")
        name = "COALESCE(q.name, (SELECT MAX(a.queue) FROM accepted_count a WHERE a.queue_id = m.queue_id), '')"
        parts = (
            "SELECT queue, day, accepted + moved AS accepted, unarchived, 0 AS held FROM accepted_count",
            f"SELECT queue, {day}, 0, 0, 1 FROM archive a LEFT JOIN {SEAL} WHERE content_digest IS NOT NULL "
            f"AND COALESCE({BATCH_NUMBER}, {int(exported)} + 1) > {int(exported)}",
            f"SELECT {name}, {day}, 0, 0, 1 FROM message m LEFT JOIN queue q ON q.id = m.queue_id "
            "WHERE m.content_digest IS NOT NULL",
        )
        integer = "SIGNED" if self.engine is Engine.MYSQL else "BIGINT"
        sums_of = ("accepted", "unarchived", "held")
        sums = ", ".join(f"CAST(SUM({name}) AS {integer}) AS {name}" for name in sums_of)
        counted = f"SELECT queue, day, {sums} FROM ({' UNION ALL '.join(parts)}) AS parts GROUP BY queue, day"
        columns: dict[str, str] = {"queue": TEXT, "day": NUMBER, **dict.fromkeys(sums_of, NUMBER)}
        answer = self._query(columns, f"FROM ({counted}) AS accounts")
        return (_accounts(chunk) for chunk in answer)

    def _query(self, columns: Mapping[str, str], source: str) -> Iterator[pa.Table]:
        """Yield the values of these columns in at least one table. `columns` maps each to an empty value of its
        type."""
        try:
            yield from merge_batches(query(self.engine, self.url, columns, source))
        except Exception as error:
            raise DatabaseUnavailable(self.error_text(error)) from error

    def error_text(self, error: Exception) -> str:
        said = " ".join(str(error).split())
        if NO_ARCHIVE.search(said):
            return f"The database {self.name} has no sealed archive. Use Peeklock's database, migrated by `peeklock migrate`."
        password = urlsplit(self.url).password
        return f"The database {self.name} cannot be read: {said.replace(password, '...') if password else said}"


def name_in_seal(name: str) -> str:
    """Return the qualified name of a column of `archive_seal`."""
    return f"s.{name}"


SEAL = "archive_seal s ON s.sequence_number = a.sequence_number"
SEALED_MESSAGE = "archive a ON a.sequence_number = s.sequence_number"
BATCH_NUMBER = "COALESCE(s.export_batch, NULLIF(a.export_batch, 0))"
"""The batch of an archived message, null until it is sealed. `archive.export_batch` has the batches that servers sealed
before there was a table `archive_seal`, and 0 since."""

AUDITED_QUEUE_COLUMNS = (
    "sequence_number", "queue", "message_id", "enqueued_at", "group_id", "headers", "body_kind", "body",
    "content_digest", "standing", "place", "body_sha256", "content_found",
)  # fmt: skip
"""The columns of messages in queues that an audit reads. No digest covers the others, which may change until the
end."""


NUMBER, TEXT, BLOB = "0", "''", "x''"
"""An empty value of each type that a database stores."""

BATCHES = {
    "number": NUMBER, "row_count": NUMBER, "digest": TEXT, "sealed_at": NUMBER, "removed_at": NUMBER,
    "digest_version": NUMBER,
}  # fmt: skip


UNSTORED_COLUMNS = ("date", "taken_at", HISTORY, ROW_CHECKSUM)
"""Columns of the lake that no table of the database has."""


def _stored_columns(spec: TableSpec) -> dict[str, str]:
    """Return the columns of a table of the lake that the database stores, each with an empty value of its stored
    type."""
    fields = {field.name: field.type for field in spec.schema if field.name not in UNSTORED_COLUMNS}
    return {name: _empty(name, kind) for name, kind in fields.items()}


def _empty(name: str, kind: pa.DataType) -> str:
    if name in ("body", "lock_token", "content_digest"):
        return BLOB
    return TEXT if pa.types.is_string(kind) and name not in CODES else NUMBER


def _accounts(rows: pa.Table) -> pa.Table:
    """Return accounts with their days as dates. They are stored as days since 1970."""
    days = rows["day"].cast(pa.int64()).cast(pa.int32()).cast(pa.date32())
    return to_lake_table(rows.drop_columns("day").append_column("date", days), ACCOUNTS)
