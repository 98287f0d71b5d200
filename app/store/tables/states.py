"""The tables of versioned states."""

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, text
from sqlmodel import Field, SQLModel

from app.store.tables.column_types import (
    AutoId,
    BodyType,
    DigestType,
    ExactIdType,
    LongText,
    NameType,
    TableName,
)


class StateRow(SQLModel, table=True):
    """The state of a key. Every change locks its row first. The key is null once the state was deleted."""

    __tablename__: ClassVar[TableName] = "state"

    id: int = Field(sa_column=Column(AutoId, primary_key=True, autoincrement=True))
    state_key: str | None = Field(sa_column=Column(NameType, unique=True))
    number: int = Field(sa_column=Column(BigInteger, nullable=False))
    updated_at: int = Field(sa_column=Column(BigInteger, nullable=False))


class StateVersionRow(SQLModel, table=True):
    """A version of a state, and the receipts of the messages that were sent with it.

    `replaced_at` is when it replaced the version before it. It is null in the first version. When that earlier version
    is removed, `replaced_at` and `message_id` become null: a duplicate of the message could no longer run on its state.
    """

    __tablename__: ClassVar[TableName] = "state_version"
    __table_args__ = (
        Index("state_version_number", "state_id", "number", unique=True),
        Index("state_version_message", "state_id", "message_id", unique=True),
        Index(
            "state_version_replaced_at",
            "replaced_at",
            "id",
            postgresql_where=text("replaced_at IS NOT NULL"),
            sqlite_where=text("replaced_at IS NOT NULL"),
        ),
    )

    id: int = Field(sa_column=Column(AutoId, primary_key=True, autoincrement=True))
    state_id: int = Field(sa_column=Column(BigInteger, nullable=False))
    number: int = Field(sa_column=Column(BigInteger, nullable=False))
    message_id: str | None = Field(sa_column=Column(ExactIdType))
    value: bytes = Field(sa_column=Column(BodyType, nullable=False))
    metadata_: bytes = Field(sa_column=Column("metadata", BodyType, nullable=False))
    result_digest: bytes = Field(sa_column=Column(DigestType, nullable=False))
    receipts: str = Field(sa_column=Column(LongText, nullable=False))
    created_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    replaced_at: int | None = Field(sa_column=Column(BigInteger))
