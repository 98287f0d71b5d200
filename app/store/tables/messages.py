"""The tables of messages in queues, of their counts, and of what is remembered of deliveries and sends."""

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, Integer, SmallInteger, Table, Text, text
from sqlmodel import Field, SQLModel

from app.domain.message import MessageState
from app.store.tables.column_types import (
    NO_ID_REUSE,
    AutoId,
    BodyType,
    DigestType,
    ExactIdType,
    IdType,
    LongText,
    NameType,
    SecretType,
    ShortString,
    TableName,
)

IS_AVAILABLE = f"state = {MessageState.AVAILABLE.value}"


class MessageRow(SQLModel, table=True):
    """A message that is in a queue, in any state.

    `headers` is a JSON object of the envelope's text fields that are set; null when none is. `content_digest` is
    computed when the message is accepted, as `domain/digest.py` says, and never changes. It is null if a server from
    before digests accepted the message. `in_group` is 1 in a message that has a place in its group and 2 in a blocked
    one. `home_state` is 8 in a message whose sender waits for the settlement: it returns to no state. A message with a
    `shared_body_id` has its body in `SharedBodyRow`, of `shared_body_bytes` bytes, and none here.
    """

    __tablename__: ClassVar[TableName] = "message"
    __table_args__ = (
        # The order of delivery. Only available rows are in it, so scheduled and dead-lettered ones cost claims nothing.
        Index(
            "message_next",
            "queue_id",
            "state",
            text("priority DESC"),
            "available_at",
            "sequence_number",
            postgresql_where=text(IS_AVAILABLE),
            sqlite_where=text(IS_AVAILABLE),
        ),
        Index(
            "message_by_state",
            "queue_id",
            "state",
            "sequence_number",
            # True of every row, but only statements that state it may use the index. A planner that believes the table
            # empty would otherwise search all of it for a number alone.
            postgresql_where=text("state > 0"),
        ),
        Index(
            "message_lock_end",
            "locked_until",
            postgresql_where=text("locked_until IS NOT NULL"),
            sqlite_where=text("locked_until IS NOT NULL"),
        ),
        Index(
            "message_due", "state", "available_at", postgresql_where=text("state = 3"), sqlite_where=text("state = 3")
        ),
        Index(
            # By state first: dead-lettered messages past their time stay, and no background loop should read over them.
            "message_expiry",
            "state",
            "expires_at",
            postgresql_where=text("expires_at IS NOT NULL"),
            sqlite_where=text("expires_at IS NOT NULL"),
        ),
        Index(
            # MariaDB has no partial index. There the first column keeps messages without a group together.
            "message_group",
            "in_group",
            "queue_id",
            "group_id",
            "sequence_number",
            postgresql_where=text("in_group IS NOT NULL"),
            sqlite_where=text("in_group IS NOT NULL"),
        ),
        Index(
            "message_shared_body",
            "shared_body_id",
            postgresql_where=text("shared_body_id IS NOT NULL"),
            sqlite_where=text("shared_body_id IS NOT NULL"),
        ),
        NO_ID_REUSE,
    )

    sequence_number: int = Field(sa_column=Column(AutoId, primary_key=True, autoincrement=True))
    queue_id: int = Field(sa_column=Column(Integer, nullable=False))
    state: int = Field(sa_column=Column(SmallInteger, nullable=False))
    home_state: int = Field(sa_column=Column(SmallInteger, nullable=False))
    priority: int = Field(sa_column=Column(SmallInteger, nullable=False))
    enqueued_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    available_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    expires_at: int | None = Field(sa_column=Column(BigInteger))
    delivery_count: int = Field(sa_column=Column(Integer, nullable=False))
    failure_count: int = Field(sa_column=Column(Integer, nullable=False))
    lock_token: bytes | None = Field(sa_column=Column(SecretType))
    locked_until: int | None = Field(sa_column=Column(BigInteger))
    lock_generation: int = Field(sa_column=Column(Integer, nullable=False))
    receiver_id: str | None = Field(sa_column=Column(IdType))
    first_delivered_at: int | None = Field(sa_column=Column(BigInteger))
    last_delivered_at: int | None = Field(sa_column=Column(BigInteger))
    last_failure: str | None = Field(sa_column=Column(Text))
    message_id: str = Field(sa_column=Column(IdType, nullable=False))
    group_id: str | None = Field(sa_column=Column(IdType))
    headers: str | None = Field(sa_column=Column(LongText))
    properties: str | None = Field(sa_column=Column(LongText))
    body_kind: int = Field(sa_column=Column(SmallInteger, nullable=False))
    body: bytes = Field(sa_column=Column(BodyType, nullable=False))
    dead_letter_reason: str | None = Field(sa_column=Column(Text))
    dead_letter_description: str | None = Field(sa_column=Column(Text))
    dead_lettered_at: int | None = Field(sa_column=Column(BigInteger))
    content_digest: bytes | None = Field(sa_column=Column(SecretType))
    in_group: int | None = Field(sa_column=Column(SmallInteger))
    shared_body_id: str | None = Field(sa_column=Column(IdType))
    shared_body_bytes: int | None = Field(sa_column=Column(BigInteger))


class SharedBodyRow(SQLModel, table=True):
    """A body that several messages have, in queues and in the archive. It is deleted when none of them is left."""

    __tablename__: ClassVar[TableName] = "shared_body"

    id: str = Field(sa_column=Column(IdType, primary_key=True))
    body: bytes = Field(sa_column=Column(BodyType, nullable=False))


GROUP_LOCK = Table("group_lock", SQLModel.metadata, Column("bucket", Integer, primary_key=True, autoincrement=False))
"""Rows that transactions lock while messages enter or leave groups, always the same row for a group. They are never
changed. SQLite has none, because it has one writer."""

DEPTH = Table(
    "depth",
    SQLModel.metadata,
    Column("queue_id", Integer, nullable=False),
    Column("total", Integer, nullable=False, server_default=text("0")),
    Column("scheduled", Integer, nullable=False, server_default=text("0")),
    Column("deferred", Integer, nullable=False, server_default=text("0")),
    Column("dead_lettered", Integer, nullable=False, server_default=text("0")),
    Column("blocked", Integer, nullable=False, server_default=text("0")),
    Index("depth_queue", "queue_id"),
)
"""How many messages queues hold, as changes that add up. Written on PostgreSQL alone, where counting rows is costly.

Every statement adds a row of its own, because changing a shared row would make statements wait for each other. A
background loop folds the rows.
"""


class AcceptedCountRow(SQLModel, table=True):
    """How many messages a queue has accepted on a day, as changes that add up.

    Sum `accepted`, `moved` and `unarchived` over all rows of a `queue_id` and `day`. `day` is the day of `enqueued_at`,
    in UTC, as days since 1970-01-01. `queue` is the queue's name; the rows stay when the queue is deleted. Only messages
    with a `content_digest` count. Each change is made in the same transaction as the event that it counts:

    - `accepted`: a message was stored. A recognised duplicate does not count.
    - `moved`: a redrive moved a message to this queue (1) or from this queue to another one (-1).
    - `unarchived`: a message left without a row in the archive, because its queue keeps none.

    So `accepted + moved` is the number of messages in the queue, plus those in the archive, exported or not, plus
    `unarchived`, if every server that writes to the database has this table.

    `first_number` distinguishes the changes: it is the first message of the statement. In rows that a background loop
    has added up it is 0. A statement adds a row of its own, so that no two statements wait for each other.
    """

    __tablename__: ClassVar[TableName] = "accepted_count"

    first_number: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    queue_id: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    day: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    queue: str = Field(sa_column=Column(NameType, nullable=False))
    accepted: int = Field(sa_column=Column(BigInteger, nullable=False, server_default=text("0")))
    moved: int = Field(sa_column=Column(BigInteger, nullable=False, server_default=text("0")))
    unarchived: int = Field(sa_column=Column(BigInteger, nullable=False, server_default=text("0")))


class SettlementRow(SQLModel, table=True):
    """The tombstone of a delivery that ended without an archived message."""

    __tablename__: ClassVar[TableName] = "settlement"
    __table_args__ = (Index("settlement_remove_at", "remove_at"),)

    sequence_number: int = Field(sa_column=Column(AutoId, primary_key=True, autoincrement=False))
    lock_token: bytes = Field(sa_column=Column(SecretType, primary_key=True))
    queue_id: int = Field(sa_column=Column(Integer, nullable=False))
    outcome: str = Field(sa_column=Column(ShortString, nullable=False))
    state: int | None = Field(sa_column=Column(SmallInteger))
    settled_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    remove_at: int = Field(sa_column=Column(BigInteger, nullable=False))


class OfferRow(SQLModel, table=True):
    """A message whose sender waits for the settlement, and what became of it.

    `outcome` is null while the message is in its queue. `delivery_count` is that of the message at its end. `reply` is
    the JSON value that its receiver answered with.
    """

    __tablename__: ClassVar[TableName] = "offer"
    __table_args__ = (Index("offer_remove_at", "remove_at"),)

    sequence_number: int = Field(sa_column=Column(AutoId, primary_key=True, autoincrement=False))
    queue: str = Field(sa_column=Column(NameType, nullable=False))
    outcome: str | None = Field(sa_column=Column(ShortString))
    delivery_count: int = Field(sa_column=Column(Integer, nullable=False, server_default=text("0")))
    reply: bytes | None = Field(sa_column=Column(BodyType))
    remove_at: int = Field(sa_column=Column(BigInteger, nullable=False))


class AttemptRow(SQLModel, table=True):
    """The answer of a request that carried an Idempotency-Key."""

    __tablename__: ClassVar[TableName] = "attempt"
    __table_args__ = (Index("attempt_remove_at", "remove_at"),)

    attempt_key: bytes = Field(sa_column=Column(DigestType, primary_key=True))
    fingerprint: bytes = Field(sa_column=Column(DigestType, nullable=False))
    answer: str | None = Field(sa_column=Column(LongText))
    remove_at: int = Field(sa_column=Column(BigInteger, nullable=False))


class RecentIdRow(SQLModel, table=True):
    """A message id within its queue's window for recognising duplicates, and the receipt that its sender got."""

    __tablename__: ClassVar[TableName] = "recent_id"
    __table_args__ = (Index("recent_id_remove_at", "remove_at"),)

    queue_id: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    message_id: str = Field(sa_column=Column(ExactIdType, primary_key=True))
    sequence_number: int = Field(sa_column=Column(BigInteger, nullable=False))
    state: int = Field(sa_column=Column(SmallInteger, nullable=False))
    enqueued_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    remove_at: int = Field(sa_column=Column(BigInteger, nullable=False))
