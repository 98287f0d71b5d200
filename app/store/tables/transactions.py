"""The tables of transactions: the members of open ones, and the outcomes of those that have ended."""

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, Integer, SmallInteger
from sqlmodel import Field, SQLModel

from app.store.tables.column_types import (
    BodyType,
    IdType,
    LongText,
    NameType,
    SecretType,
    ShortString,
    TableName,
)


class MessageTransactionRow(SQLModel, table=True):
    """A transaction of a client.

    `state` is a number of `TransactionState`. `answer` is the result of its members once it is committed. `cause` and
    `member`, a JSON object, say why it was rolled back. Both wait for a repeated commit until `remove_at`.
    """

    __tablename__: ClassVar[TableName] = "message_transaction"
    __table_args__ = (
        Index("message_transaction_deadline", "state", "expires_at"),
        Index("message_transaction_remove_at", "remove_at"),
    )

    id: str = Field(sa_column=Column(IdType, primary_key=True))
    principal: str = Field(sa_column=Column(IdType, nullable=False))
    state: int = Field(sa_column=Column(SmallInteger, nullable=False))
    opened_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    expires_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    ended_at: int | None = Field(sa_column=Column(BigInteger))
    member_count: int = Field(sa_column=Column(Integer, nullable=False))
    member_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    answer: str | None = Field(sa_column=Column(LongText))
    cause: str | None = Field(sa_column=Column(ShortString))
    member: str | None = Field(sa_column=Column(LongText))
    remove_at: int | None = Field(sa_column=Column(BigInteger))


class TransactionMemberRow(SQLModel, table=True):
    """A member of an open transaction, at its position in the order of joining.

    A send has `queue_id`, `message_id`, `due_at` and `body`, a settlement has `sequence_number`, `lock_token` and `outcome`.
    `content` is the rest of the draft, or the settlement, as JSON. Members are deleted when their transaction ends.
    """

    __tablename__: ClassVar[TableName] = "transaction_member"
    __table_args__ = (
        Index("transaction_member_lock", "sequence_number", "lock_token", unique=True),
        Index("transaction_member_queue", "queue_id"),
    )

    transaction_id: str = Field(sa_column=Column(IdType, primary_key=True))
    place: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    queue: str = Field(sa_column=Column(NameType, nullable=False))
    message_id: str | None = Field(sa_column=Column(IdType))
    due_at: int | None = Field(sa_column=Column(BigInteger))
    expires_at: int | None = Field(sa_column=Column(BigInteger))
    sequence_number: int | None = Field(sa_column=Column(BigInteger))
    lock_token: bytes | None = Field(sa_column=Column(SecretType))
    outcome: str | None = Field(sa_column=Column(ShortString))
    member_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    content: str = Field(sa_column=Column(LongText, nullable=False))
    body: bytes | None = Field(sa_column=Column(BodyType))
    queue_id: int | None = Field(sa_column=Column(Integer))
