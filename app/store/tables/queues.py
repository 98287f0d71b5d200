"""The tables of queues, API keys and the database itself."""

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, Integer, SmallInteger, Text, text
from sqlmodel import Field, SQLModel

from app.store.tables.column_types import (
    NO_ID_REUSE,
    DigestType,
    IdType,
    LongText,
    NameType,
    ShortString,
    TableName,
)


class BrokerRow(SQLModel, table=True):
    """The one row that identifies this database by a random id. A copy of the database has the same id."""

    __tablename__: ClassVar[TableName] = "broker"

    id: str = Field(sa_column=Column(ShortString, primary_key=True))


class QueueRow(SQLModel, table=True):
    """A queue; its settings are one JSON object.

    After a change that ends locks, the locks granted until `take_locks_until` are to be revoked. Then it is null.
    `lock_purges` counts the purges that revoked locks. Only servers that know `feature_level` serve the queue.
    `group_in_flight` repeats the setting for statements. After a change of it, blocked messages of the groups after
    `admit_after` are to be admitted. Then it is null. `history_retention` is how long events are kept at least, null if
    the queue keeps no history.
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
    history_retention: int | None = Field(sa_column=Column(BigInteger))


class DeletedQueueRow(SQLModel, table=True):
    """A deleted queue: what its messages need to be archived. Kept until a day after the last message is removed."""

    __tablename__: ClassVar[TableName] = "deleted_queue"

    id: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    name: str = Field(sa_column=Column(NameType, nullable=False))
    archive_retention: int = Field(sa_column=Column(BigInteger, nullable=False))
    deleted_at: int = Field(sa_column=Column(BigInteger, nullable=False))


class SessionRow(SQLModel, table=True):
    """A person who has signed in with an API key, without the secret of the session."""

    __tablename__: ClassVar[TableName] = "session"
    __table_args__ = (Index("session_expires_at", "expires_at"),)

    secret_hash: bytes = Field(sa_column=Column(DigestType, primary_key=True))
    key_id: str = Field(sa_column=Column(ShortString, nullable=False))
    created_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    expires_at: int = Field(sa_column=Column(BigInteger, nullable=False))


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
