"""views: SQL views over a lake for analysts, for Spark and for DuckDB.

- `messages`: a row for each message that ended or was in a queue at the last snapshot, with its times in seconds.
- `deliveries`: a row for each delivery of which a history tells. Of a message without one, a row for its last delivery.
- `dead_letters`: the messages that were dead-lettered for a reason, or are in a dead-letter queue.
- `waiting_time`: a row for each queue and hour of first delivery, with quantiles of the waiting time in seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from peeklock_pipeline.broker_tables import LIVE_HISTORY
from peeklock_pipeline.dialects import Dialect
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import files_of, require_files
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.table_specs import ARCHIVE, HISTORY, MESSAGES, TableSpec
from peeklock_pipeline.transforms.report import NO_REASON

BASE_TABLES = (ARCHIVE, MESSAGES, LIVE_HISTORY)
"""The tables of the lake that the views read. Only the first always exists."""

BASE_PREFIX = "lake_"
"""The prefix of a table of the lake, where it has to be registered under a name."""


@dataclass(frozen=True, slots=True)
class _Words:
    """What engines write differently: a Delta table, a time in microseconds, the start of an hour, rows of a list.

    `quote` surrounds the place of a table. In it, a place has this character twice.
    """

    table: str
    quote: str
    micros: str
    hour: str
    each: str
    prologue: str


WORDS = {
    Dialect.SPARK: _Words(
        table="delta.`{}`",
        quote="`",
        micros="unix_micros({})",
        hour="timestamp_micros(unix_micros({}) DIV 3600000000 * 3600000000)",
        each="LATERAL VIEW explode({}) e AS item",
        prologue="",
    ),
    Dialect.DUCKDB: _Words(
        table="delta_scan('{}')",
        quote="'",
        micros="epoch_us({})",
        hour="make_timestamptz(epoch_us({}) // 3600000000 * 3600000000)",
        each="CROSS JOIN unnest({}) AS e(item)",
        prologue="INSTALL delta;\nLOAD delta;\n\n",
    ),
}

SHARED = (
    "sequence_number", "queue", "message_id", "group_id", "priority", "enqueued_at", "available_at", "expires_at",
    "first_delivered_at", "last_delivered_at", "delivery_count", "failure_count", "last_failure", "receiver_id",
    "dead_letter_reason", "dead_letter_description", "headers", "properties", "body_kind", "body",
)  # fmt: skip
"""The columns that messages in queues and ended ones have in common."""


def statements(lake: Lake, dialect: Dialect) -> str:
    """Return the SQL that makes the views over a lake. Refuses with `BadLake`."""
    words = WORDS[dialect]
    places = {spec.name: str(lake.directory(spec)).replace(words.quote, 2 * words.quote) for spec in _present(lake)}
    tables = {name: words.table.format(place) for name, place in places.items()}
    views = [f"CREATE OR REPLACE VIEW {name} AS\n{query};\n" for name, query in queries(tables, dialect).items()]
    return words.prologue + "\n".join(views)


def register_spark(spark: SparkSession, lake: Lake) -> None:
    """Make the views in a session, without a connector for Delta. They show the lake as it is now. Refuses with `BadLake`."""
    present = _present(lake)
    for spec in present:
        lake.read(spark, spec).createOrReplaceTempView(BASE_PREFIX + spec.name)
    for name, query in queries(_registered(present), Dialect.SPARK).items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")


def register_duckdb(connection: Any, lake: Lake) -> None:
    """Make the views in a connection of DuckDB, without its extension for Delta. They show the lake as it is now.

    Refuses with `BadLake`.
    """
    present = _present(lake)
    for spec in present:
        table = lake.table(spec)
        assert table is not None
        require_files(files_of(table), lake.directory(spec))
        connection.register(BASE_PREFIX + spec.name, table.to_pyarrow_dataset())
    for name, query in queries(_registered(present), Dialect.DUCKDB).items():
        connection.execute(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")


def _registered(specs: list[TableSpec]) -> dict[str, str]:
    return {spec.name: BASE_PREFIX + spec.name for spec in specs}


def _present(lake: Lake) -> list[TableSpec]:
    """Return the tables that the lake has. Refuses with `BadLake` if nothing was exported since histories exist."""
    if HISTORY not in {field.name for field in lake.archive_table().schema().fields}:
        raise BadLake(f"{lake.root} is of an earlier version: run `peeklock-pipeline export`, which adds its columns.")
    return [spec for spec in BASE_TABLES if lake.table(spec) is not None]


def queries(tables: Mapping[str, str], dialect: Dialect) -> dict[str, str]:
    """Return the query of each view. `tables` has the SQL of each table of the lake, by name; only `archive` has to exist."""
    words = WORDS[dialect]
    return {
        "messages": _messages(tables, words),
        "deliveries": _deliveries(tables, words),
        "dead_letters": DEAD_LETTERS,
        "waiting_time": WAITING_TIME.format(hour=words.hour.format("first_delivered_at")),
    }


def _messages(tables: Mapping[str, str], words: _Words) -> str:
    shared = ", ".join(SHARED)
    parts = [
        f"SELECT {shared}, 'ended' AS state, outcome, settled_at AS ended_at, export_batch FROM {tables[ARCHIVE.name]}"
    ]
    if MESSAGES.name in tables:
        live = ", ".join(f"m.{name}" for name in SHARED)
        parts.append(
            f"SELECT {live}, m.state, NULL AS outcome, NULL AS ended_at, NULL AS export_batch FROM {tables[MESSAGES.name]} m "
            f"WHERE NOT EXISTS (SELECT 1 FROM {tables[ARCHIVE.name]} a WHERE a.sequence_number = m.sequence_number)"
        )

    def seconds(begin: str, end: str, condition: str) -> str:
        return f"CASE WHEN {condition} THEN ({words.micros.format(end)} - {words.micros.format(begin)}) / 1e6 END"

    return MESSAGES_VIEW.format(
        waiting=seconds("available_at", "first_delivered_at", "available_at <= first_delivered_at"),
        processing=seconds("last_delivered_at", "ended_at", "outcome = 'completed'"),
        end_to_end=seconds("enqueued_at", "ended_at", "outcome IN ('completed', 'received')"),
        parts="\n  UNION ALL ".join(parts),
    )


# A retry delay or an edit overwrites available_at, so a later one than the first delivery says nothing of the waiting.
MESSAGES_VIEW = """\
SELECT *,
  {waiting} AS waiting_seconds,
  {processing} AS processing_seconds,
  {end_to_end} AS end_to_end_seconds
FROM (
  {parts}
) known"""

EVENT = ("number", "at", "event", "outcome", "receiver_id", "reason", "delivery_count")


def _deliveries(tables: Mapping[str, str], words: _Words) -> str:
    fields = ", ".join(f"e.item.{name} AS event_{name}" for name in EVENT)
    each = words.each.format(f"a.{HISTORY}")
    events = [f"SELECT a.sequence_number, a.queue, {fields} FROM {tables[ARCHIVE.name]} a {each}"]
    known = [f"SELECT sequence_number FROM {tables[ARCHIVE.name]} WHERE {HISTORY} IS NOT NULL"]
    if LIVE_HISTORY.name in tables:
        live = ", ".join(f"h.{name} AS event_{name}" for name in EVENT)
        history = tables[LIVE_HISTORY.name]
        events.append(
            f"SELECT h.sequence_number, h.queue, {live} FROM {history} h "
            f"WHERE NOT EXISTS (SELECT 1 FROM {tables[ARCHIVE.name]} a WHERE a.sequence_number = h.sequence_number)"
        )
        known.append(f"SELECT sequence_number FROM {history}")
    return DELIVERIES_VIEW.format(
        events="\n    UNION ALL ".join(events),
        known="\n    UNION ALL ".join(known),
        duration=f"({words.micros.format('ended_at')} - {words.micros.format('delivered_at')}) / 1e6",
    )


DELIVERIES_VIEW = """\
WITH events AS (
    {events}
), steps AS (
  SELECT *,
    LEAD(event_event) OVER following AS next_event, LEAD(event_outcome) OVER following AS next_outcome,
    LEAD(event_reason) OVER following AS next_reason, LEAD(event_at) OVER following AS next_at
  FROM events
  WHERE event_event NOT IN ('renewed', 'edited')
  WINDOW following AS (PARTITION BY sequence_number ORDER BY event_number)
), found AS (
  SELECT sequence_number, queue, event_delivery_count AS delivery, event_receiver_id AS receiver_id,
    event_at AS delivered_at, next_at AS ended_at, COALESCE(next_outcome, next_event) AS ending, next_reason AS reason,
    TRUE AS from_history
  FROM steps WHERE event_event = 'delivered'
  UNION ALL
  SELECT sequence_number, queue, delivery_count, receiver_id, last_delivered_at,
    CASE WHEN outcome IN ('completed', 'received') THEN ended_at END,
    CASE WHEN outcome IN ('completed', 'received') THEN outcome END, NULL, FALSE
  FROM messages
  WHERE delivery_count > 0 AND NOT EXISTS (
    SELECT 1 FROM (
    {known}
    ) known WHERE known.sequence_number = messages.sequence_number
  )
)
SELECT *, {duration} AS seconds FROM found"""

DEAD_LETTERS = f"""\
SELECT sequence_number, queue, message_id, group_id, COALESCE(dead_letter_reason, '{NO_REASON}') AS reason,
  dead_letter_description AS description, state = 'dead_lettered' AS is_waiting, outcome, ended_at, enqueued_at,
  last_delivered_at, delivery_count, failure_count, last_failure, receiver_id, properties, body_kind, body
FROM messages
WHERE state = 'dead_lettered' OR dead_letter_reason IS NOT NULL"""

WAITING_TIME = """\
SELECT queue, hour, COUNT(*) AS messages,
  percentile_disc(0.5) WITHIN GROUP (ORDER BY waiting_seconds) AS p50,
  percentile_disc(0.95) WITHIN GROUP (ORDER BY waiting_seconds) AS p95,
  percentile_disc(0.99) WITHIN GROUP (ORDER BY waiting_seconds) AS p99,
  MAX(waiting_seconds) AS longest
FROM (SELECT queue, {hour} AS hour, waiting_seconds FROM messages WHERE waiting_seconds IS NOT NULL) waits
GROUP BY queue, hour"""
