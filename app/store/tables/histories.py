"""The table of what happened to messages."""

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, Integer, SmallInteger, Text, text
from sqlmodel import Field, SQLModel

from app.store.tables.column_types import NO_ID_REUSE, AutoId, IdType, SecretType, ShortString, TableName


class MessageEventRow(SQLModel, table=True):
    """One event in the history of a message. The ids of a message's events ascend in the order of its transactions.

    `state` is null if the message has left its queue. `lock_token` is set while the message is locked: the end of the
    delivery finds its receiver by it. A message's events are deleted together: after `remove_at` of the last one, once the
    message is in no queue and not in the archive, or with its batch, which was trimmed.
    """

    __tablename__: ClassVar[TableName] = "message_event"
    __table_args__ = (
        Index(
            "message_event_message",
            "sequence_number",
            "id",
            # True of every row, as in `message_by_state`: a statement that names only ids reads the primary key.
            postgresql_where=text("queue_id > 0"),
        ),
        Index("message_event_remove_at", "remove_at"),
        NO_ID_REUSE,
    )

    id: int = Field(sa_column=Column(AutoId, primary_key=True, autoincrement=True))
    sequence_number: int = Field(sa_column=Column(BigInteger, nullable=False))
    queue_id: int = Field(sa_column=Column(Integer, nullable=False))
    happened_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    event: str = Field(sa_column=Column(ShortString, nullable=False))
    state: int | None = Field(sa_column=Column(SmallInteger))
    outcome: str | None = Field(sa_column=Column(ShortString))
    lock_token: bytes | None = Field(sa_column=Column(SecretType))
    receiver_id: str | None = Field(sa_column=Column(IdType))
    reason: str | None = Field(sa_column=Column(Text))
    delivery_count: int | None = Field(sa_column=Column(Integer))
    remove_at: int = Field(sa_column=Column(BigInteger, nullable=False))
