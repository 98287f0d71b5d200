"""The tables, as SQLModel classes. A test compares the migrations with them.

Times are microseconds since 1970 UTC. States are the numbers of `MessageState`. There are no foreign keys: every
message would pay for them. A background loop removes what a deleted queue leaves.
"""

from typing import Any, ClassVar, TypeAlias

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, SmallInteger, Table, Text, text
from sqlalchemy.dialects import mysql
from sqlmodel import Field, SQLModel, String

from app.domain.message import MAX_ID_LENGTH, MessageState
from app.domain.queue import MAX_NAME_LENGTH

# SQLModel declares this name with a type that type checkers cannot follow.
TableName: TypeAlias = Any

# Names and ids compare byte by byte on every engine; MariaDB would fold case and accents. Names are also listed in
# that order; PostgreSQL would follow the language of its database.
NameType = (
    String(MAX_NAME_LENGTH)
    .with_variant(mysql.VARCHAR(MAX_NAME_LENGTH, collation="utf8mb4_bin"), "mysql", "mariadb")
    .with_variant(String(MAX_NAME_LENGTH, collation="C"), "postgresql")
)
IdType = String(MAX_ID_LENGTH).with_variant(mysql.VARCHAR(MAX_ID_LENGTH, collation="utf8mb4_bin"), "mysql", "mariadb")
# Used where an id alone decides whether two messages are the same: MariaDB's VARCHAR ignores blanks at the end.
ExactIdType = String(MAX_ID_LENGTH).with_variant(mysql.VARBINARY(4 * MAX_ID_LENGTH), "mysql", "mariadb")
ShortString = String(64)
# 64-bit keys. SQLite numbers rows automatically only in a column of type INTEGER.
AutoId = BigInteger().with_variant(Integer(), "sqlite")
BodyType = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
LongText = Text().with_variant(mysql.MEDIUMTEXT(collation="utf8mb4_bin"), "mysql", "mariadb")
SecretType = LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")
DigestType = LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")

# SQLite alone would reuse the number of a deleted last row: for a queue that then inherits the rows of the deleted
# one, or for a message whose number the archive already has.
NO_ID_REUSE = {"sqlite_autoincrement": True}
IS_AVAILABLE = f"state = {MessageState.AVAILABLE.value}"


class BrokerRow(SQLModel, table=True):
    """The one row that identifies this database by a random id. A copy of the database has the same id."""

    __tablename__: ClassVar[TableName] = "broker"

    id: str = Field(sa_column=Column(ShortString, primary_key=True))


class QueueRow(SQLModel, table=True):
    """A queue; its settings are one JSON object.

    After a change that ends locks, the locks granted until `take_locks_until` are to be revoked. Then it is null.
    `lock_purges` counts the purges that revoked locks. Only servers that know `feature_level` serve the queue.
    `group_in_flight` repeats the setting for statements. After a change of it, blocked messages of the groups after
    `admit_after` are to be admitted. Then it is null.
    """

    __tablename__: ClassVar[TableName] = "queue"
    __table_args__ = (
        Index(
            "queue_take_locks",
            "take_locks_until",
            postgresql_where=text("take_locks_until IS NOT NULL"),
            sqlite_where=text("take_locks_until IS NOT NULL"),
        ),
        Index(
            "queue_feature_level",
            "feature_level",
            postgresql_where=text("feature_level > 0"),
            sqlite_where=text("feature_level > 0"),
        ),
        Index(
            "queue_admit_after",
            "admit_after",
            postgresql_where=text("admit_after IS NOT NULL"),
            sqlite_where=text("admit_after IS NOT NULL"),
        ),
        NO_ID_REUSE,
    )

    id: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=True))
    name: str = Field(sa_column=Column(NameType, nullable=False, unique=True))
    settings: str = Field(sa_column=Column(LongText, nullable=False))
    version: int = Field(sa_column=Column(Integer, nullable=False))
    created_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    updated_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    take_locks_until: int | None = Field(sa_column=Column(BigInteger))
    lock_purges: int = Field(sa_column=Column(Integer, nullable=False, server_default=text("0")))
    feature_level: int = Field(sa_column=Column(SmallInteger, nullable=False, server_default=text("0")))
    group_in_flight: int | None = Field(sa_column=Column(Integer))
    admit_after: str | None = Field(sa_column=Column(IdType))


class DeletedQueueRow(SQLModel, table=True):
    """A deleted queue: what its messages need to be archived. Kept until a day after the last message is removed."""

    __tablename__: ClassVar[TableName] = "deleted_queue"

    id: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    name: str = Field(sa_column=Column(NameType, nullable=False))
    archive_retention: int = Field(sa_column=Column(BigInteger, nullable=False))
    deleted_at: int = Field(sa_column=Column(BigInteger, nullable=False))


class MessageRow(SQLModel, table=True):
    """A message that is in a queue, in any state.

    `headers` is a JSON object of the envelope's text fields that are set; null when none is. `content_digest` is
    computed when the message is accepted, as `domain/digest.py` says, and never changes. It is null if a server from
    before digests accepted the message. `in_group` is 1 in a message that has a place in its group and 2 in a blocked
    one.
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


class ArchiveRow(SQLModel, table=True):
    """A message as it ended. `lock_token` is the token that settled it: its tombstone.

    `export_batch` is 0: `ArchiveSealRow` names the batch. In rows that an older server archived it is the batch, null
    until the message is sealed. `content_digest` is copied from the message.
    """

    __tablename__: ClassVar[TableName] = "archive"
    __table_args__ = (Index("archive_export", "export_batch", "remove_at"),)

    sequence_number: int = Field(sa_column=Column(AutoId, primary_key=True, autoincrement=False))
    queue_id: int = Field(sa_column=Column(Integer, nullable=False))
    queue: str = Field(sa_column=Column(NameType, nullable=False))
    outcome: str = Field(sa_column=Column(ShortString, nullable=False))
    settled_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    remove_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    lock_token: bytes | None = Field(sa_column=Column(SecretType))
    receiver_id: str | None = Field(sa_column=Column(IdType))
    priority: int = Field(sa_column=Column(SmallInteger, nullable=False))
    enqueued_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    available_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    expires_at: int | None = Field(sa_column=Column(BigInteger))
    first_delivered_at: int | None = Field(sa_column=Column(BigInteger))
    last_delivered_at: int | None = Field(sa_column=Column(BigInteger))
    delivery_count: int = Field(sa_column=Column(Integer, nullable=False))
    failure_count: int = Field(sa_column=Column(Integer, nullable=False))
    last_failure: str | None = Field(sa_column=Column(Text))
    message_id: str = Field(sa_column=Column(IdType, nullable=False))
    group_id: str | None = Field(sa_column=Column(IdType))
    headers: str | None = Field(sa_column=Column(LongText))
    properties: str | None = Field(sa_column=Column(LongText))
    body_kind: int = Field(sa_column=Column(SmallInteger, nullable=False))
    body: bytes = Field(sa_column=Column(BodyType, nullable=False))
    dead_letter_reason: str | None = Field(sa_column=Column(Text))
    dead_letter_description: str | None = Field(sa_column=Column(Text))
    export_batch: int | None = Field(sa_column=Column(BigInteger))
    content_digest: bytes | None = Field(sa_column=Column(SecretType))


class ArchiveSealRow(SQLModel, table=True):
    """The batch that an archived message was sealed in, null until then. Sealing writes this row and not the message."""

    __tablename__: ClassVar[TableName] = "archive_seal"
    __table_args__ = (Index("archive_seal_batch", "export_batch", "remove_at"),)

    sequence_number: int = Field(sa_column=Column(AutoId, primary_key=True, autoincrement=False))
    remove_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    export_batch: int | None = Field(sa_column=Column(BigInteger))


class RestorableRow(SQLModel, table=True):
    """An archived message that was purged or cancelled and is not restored yet.

    It is written with the row of the archive, and deleted in the transaction that stores the restored message. It may
    outlive the row of the archive, until `remove_at`.
    """

    __tablename__: ClassVar[TableName] = "restorable"
    __table_args__ = (
        Index(
            "restorable_queue",
            "queue",
            "sequence_number",
            "settled_at",
            # True of every row, as in `message_by_state`: a statement that names only numbers reads the primary key.
            postgresql_where=text("settled_at > 0"),
        ),
        Index("restorable_remove_at", "remove_at"),
    )

    sequence_number: int = Field(sa_column=Column(AutoId, primary_key=True, autoincrement=False))
    queue: str = Field(sa_column=Column(NameType, nullable=False))
    settled_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    remove_at: int = Field(sa_column=Column(BigInteger, nullable=False))


class ExportBatchRow(SQLModel, table=True):
    """A sealed batch of the archive, kept for a year after its messages were removed.

    `rows_until` is `remove_at` until the messages that `archive_seal` names are removed, and null afterwards. It is null
    in a batch that an older server sealed. An older server may set `removed_at` although these messages are left.

    `digest_version` names the input of `digest` (`DigestVersion`): 1 the sequence numbers, 2 every column in
    `digest_columns.DIGESTED_COLUMNS` of every message.
    """

    __tablename__: ClassVar[TableName] = "export_batch"
    __table_args__ = (
        Index("export_batch_remove_at", "removed_at", "remove_at"),
        Index(
            "export_batch_rows_until",
            "rows_until",
            postgresql_where=text("rows_until IS NOT NULL"),
            sqlite_where=text("rows_until IS NOT NULL"),
        ),
    )

    number: int = Field(sa_column=Column(AutoId, primary_key=True, autoincrement=False))
    row_count: int = Field(sa_column=Column(Integer, nullable=False))
    digest: str = Field(sa_column=Column(ShortString, nullable=False))
    sealed_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    remove_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    removed_at: int | None = Field(sa_column=Column(BigInteger))
    removal: str | None = Field(sa_column=Column(ShortString))
    digest_version: int = Field(sa_column=Column(Integer, nullable=False, server_default=text("1")))
    rows_until: int | None = Field(sa_column=Column(BigInteger))


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


class ApiKeyRow(SQLModel, table=True):
    """An API key, without its secret."""

    __tablename__: ClassVar[TableName] = "api_key"
    __table_args__ = (Index("api_key_principal", "principal"),)

    id: str = Field(sa_column=Column(ShortString, primary_key=True))
    principal: str = Field(sa_column=Column(IdType, nullable=False))
    secret_hash: bytes = Field(sa_column=Column(DigestType, nullable=False, unique=True))
    rights: str = Field(sa_column=Column(Text, nullable=False))
    created_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    expires_at: int | None = Field(sa_column=Column(BigInteger))
    last_used_at: int | None = Field(sa_column=Column(BigInteger))
    revoked_at: int | None = Field(sa_column=Column(BigInteger))
