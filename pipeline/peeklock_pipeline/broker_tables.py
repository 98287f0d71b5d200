"""The tables of a lake that a snapshot writes besides `messages`: what queues, topics, transactions and states are now."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from peeklock_pipeline.database import BLOB, NUMBER, TEXT, Database
from peeklock_pipeline.table_specs import HISTORY, HISTORY_FIELDS, TIMESTAMP, TableSpec, to_lake_table

TAKEN_AT = pa.field("taken_at", TIMESTAMP, nullable=False)
VERSION_FIELDS = (
    pa.field("version", pa.int64(), nullable=False),
    pa.field("created_at", TIMESTAMP, nullable=False),
    pa.field("updated_at", TIMESTAMP, nullable=False),
    TAKEN_AT,
)

QUEUES = TableSpec(
    "queues",
    pa.schema(
        [
            pa.field("queue", pa.string(), nullable=False),
            pa.field("settings", pa.string(), nullable=False),
            *VERSION_FIELDS,
        ]
    ),
)
"""The queues; `settings` is a JSON object, as servers store it, with durations in microseconds."""

TOPICS = TableSpec(
    "topics",
    pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("description", pa.string(), nullable=False),
            *VERSION_FIELDS,
        ]
    ),
)

SUBSCRIPTIONS = TableSpec(
    "subscriptions",
    pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("subscription", pa.string(), nullable=False),
            pa.field("target_queue", pa.string(), nullable=False),
            pa.field("filter", pa.string()),
            pa.field("set_properties", pa.string(), nullable=False),
            pa.field("remove_properties", pa.string(), nullable=False),
            *VERSION_FIELDS,
        ]
    ),
)
"""The subscriptions; `set_properties` is a JSON object, `remove_properties` a JSON list."""

TRANSACTIONS = TableSpec(
    "transactions",
    pa.schema(
        [
            pa.field("transaction_id", pa.string(), nullable=False),
            pa.field("principal", pa.string(), nullable=False),
            pa.field("state", pa.string(), nullable=False),
            pa.field("opened_at", TIMESTAMP, nullable=False),
            pa.field("expires_at", TIMESTAMP, nullable=False),
            pa.field("ended_at", TIMESTAMP),
            pa.field("member_count", pa.int64(), nullable=False),
            pa.field("member_bytes", pa.int64(), nullable=False),
            pa.field("cause", pa.string()),
            TAKEN_AT,
        ]
    ),
)
"""The transactions that are open, and those that ended within the last hour or so, without their members."""

STATES = TableSpec(
    "states",
    pa.schema(
        [
            pa.field("state_key", pa.string(), nullable=False),
            pa.field("version", pa.int64(), nullable=False),
            pa.field("value", pa.string(), nullable=False),
            pa.field("metadata", pa.string(), nullable=False),
            pa.field("message_id", pa.string()),
            pa.field("updated_at", TIMESTAMP, nullable=False),
            TAKEN_AT,
        ]
    ),
)
"""The newest version of each state; `value` and `metadata` are JSON."""

LIVE_HISTORY = TableSpec(
    HISTORY,
    pa.schema(
        [
            pa.field("sequence_number", pa.int64(), nullable=False),
            pa.field("queue", pa.string(), nullable=False),
            *HISTORY_FIELDS,
            TAKEN_AT,
        ]
    ),
)
"""The events of messages that are in their queues. Those of ended messages are in `archive`."""


UNARCHIVED = TableSpec(
    "unarchived",
    pa.schema(
        [
            pa.field("queue", pa.string(), nullable=False),
            pa.field("day", TIMESTAMP, nullable=False),
            pa.field("messages", pa.int64(), nullable=False),
            TAKEN_AT,
        ]
    ),
)
"""How many messages, accepted on a day, left a queue that keeps no archive, in one or several rows for each day."""


@dataclass(frozen=True, slots=True)
class BrokerTable:
    """How a table of the lake is read from the database, in the SQL of every engine.

    `values` has the value of each column, `source` the joined tables. A task reads the rows of a range of `key`, which is a
    number. `counted` has a row for each row that is read, or for each message, with that key in the column `number`.
    """

    spec: TableSpec
    values: Mapping[str, str]
    source: str
    counted: str
    key: str
    blobs: tuple[str, ...] = ()

    def rows(self, database: Database, first: int, last: int) -> Iterator[pa.Table]:
        """Yield the rows of which the key is between these numbers, inclusive, in tables that fit into memory."""
        values = ", ".join(f"{value} AS {name}" for name, value in self.values.items())
        within = f"{self.key} BETWEEN {int(first)} AND {int(last)}"
        columns = {name: self._empty(name) for name in self.values}
        found = f"FROM (SELECT {values} FROM {self.source} WHERE {within}) AS found"
        return (to_lake_table(chunk, self.spec) for chunk in database.select(columns, found))

    def _empty(self, name: str) -> str:
        """Return an empty value of the type that the database has for a column."""
        if name in self.blobs:
            return BLOB
        is_code = self.spec.name == LIVE_HISTORY.name and name == "state"
        return TEXT if pa.types.is_string(self.spec.schema.field(name).type) and not is_code else NUMBER


def _named(alias: str, *names: str) -> dict[str, str]:
    return {name: f"{alias}.{name}" for name in names}


CHANGED = ("version", "created_at", "updated_at")
"""The columns that settings have."""

TRANSACTION_STATE = "CASE t.state WHEN 1 THEN 'open' WHEN 2 THEN 'committed' ELSE 'rolled_back' END"

BROKER_TABLES = (
    BrokerTable(
        QUEUES,
        {"queue": "q.name", **_named("q", "settings", *CHANGED)},
        source="queue q",
        counted="SELECT id AS number FROM queue",
        key="q.id",
    ),
    BrokerTable(
        TOPICS,
        {"topic": "t.name", **_named("t", "description", *CHANGED)},
        source="topic t",
        counted="SELECT id AS number FROM topic",
        key="t.id",
    ),
    BrokerTable(
        SUBSCRIPTIONS,
        {
            "topic": "t.name",
            "subscription": "s.name",
            **_named("s", "target_queue", "filter", "set_properties", "remove_properties", *CHANGED),
        },
        source="subscription s JOIN topic t ON t.id = s.topic_id",
        counted="SELECT id AS number FROM subscription",
        key="s.id",
    ),
    BrokerTable(
        TRANSACTIONS,
        {
            "transaction_id": "t.id",
            "state": TRANSACTION_STATE,
            **_named("t", "principal", "opened_at", "expires_at", "ended_at", "member_count", "member_bytes", "cause"),
        },
        source="message_transaction t",
        counted="SELECT expires_at AS number FROM message_transaction",
        key="t.expires_at",
    ),
    BrokerTable(
        STATES,
        {
            "state_key": "s.state_key",
            "version": "s.number",
            **_named("v", "value", "metadata", "message_id"),
            "updated_at": "s.updated_at",
        },
        source="state s JOIN state_version v ON v.state_id = s.id AND v.number = s.number AND s.state_key IS NOT NULL",
        counted="SELECT id AS number FROM state WHERE state_key IS NOT NULL",
        key="s.id",
        blobs=("value", "metadata"),
    ),
    BrokerTable(
        LIVE_HISTORY,
        {
            "queue": "q.name",
            "number": "e.id",
            "at": "e.happened_at",
            **_named("e", "sequence_number", "event", "state", "outcome", "receiver_id", "reason", "delivery_count"),
        },
        source="message_event e JOIN message m ON m.sequence_number = e.sequence_number AND e.queue_id > 0 "
        "JOIN queue q ON q.id = m.queue_id",
        counted="SELECT sequence_number AS number FROM message",
        key="e.sequence_number",
    ),
    BrokerTable(
        UNARCHIVED,
        {"queue": "a.queue", "day": "a.day * 86400000000", "messages": "a.unarchived"},
        source="(SELECT queue, day, unarchived FROM accepted_count WHERE unarchived > 0) a",
        counted="SELECT day AS number FROM accepted_count WHERE unarchived > 0",
        key="a.day",
    ),
)
"""All of these tables, as a snapshot reads them."""
