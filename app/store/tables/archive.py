"""The tables of ended messages and of the batches in which they leave."""

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, Integer, SmallInteger, Text, text
from sqlmodel import Field, SQLModel

from app.store.tables.column_types import (
    AutoId,
    BodyType,
    IdType,
    LongText,
    NameType,
    SecretType,
    ShortString,
    TableName,
)


class ArchiveRow(SQLModel, table=True):
    """A message as it ended. `lock_token` is the token that settled it: its tombstone.

    `export_batch` is 0: `ArchiveSealRow` names the batch. In rows that an older server archived it is the batch, null
    until the message is sealed. `content_digest`, `shared_body_id` and `shared_body_bytes` are copied from the message.
    """

    __tablename__: ClassVar[TableName] = "archive"
    __table_args__ = (
        Index("archive_export", "export_batch", "remove_at"),
        Index(
            "archive_shared_body",
            "shared_body_id",
            postgresql_where=text("shared_body_id IS NOT NULL"),
            sqlite_where=text("shared_body_id IS NOT NULL"),
        ),
    )

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
    shared_body_id: str | None = Field(sa_column=Column(IdType))
    shared_body_bytes: int | None = Field(sa_column=Column(BigInteger))


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
    `digest_columns.DIGESTED_COLUMNS` of every message, 3 also every column in `DIGESTED_EVENT_COLUMNS` of every event.
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
