"""The table of move tasks."""

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, Integer, SmallInteger
from sqlmodel import Field, SQLModel

from app.store.tables.column_types import IdType, LongText, TableName


class MoveTaskRow(SQLModel, table=True):
    """A task that moves the messages of a queue to other queues.

    `request` is a `MoveRequest` as a JSON object, `state` a number of `MoveState`. The task has passed over the messages
    up to number `position`, and ends after `last_number`. Its next page is due at `next_at`. The last ten tasks of a queue
    are kept.
    """

    __tablename__: ClassVar[TableName] = "move_task"
    __table_args__ = (
        Index("move_task_queue", "queue_id", "started_at"),
        Index("move_task_due", "state", "next_at"),
    )

    id: str = Field(sa_column=Column(IdType, primary_key=True))
    queue_id: int = Field(sa_column=Column(Integer, nullable=False))
    request: str = Field(sa_column=Column(LongText, nullable=False))
    state: int = Field(sa_column=Column(SmallInteger, nullable=False))
    position: int = Field(sa_column=Column(BigInteger, nullable=False))
    last_number: int = Field(sa_column=Column(BigInteger, nullable=False))
    found: int = Field(sa_column=Column(BigInteger, nullable=False))
    moved: int = Field(sa_column=Column(BigInteger, nullable=False))
    started_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    progressed_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    next_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    ended_at: int | None = Field(sa_column=Column(BigInteger))
    reason: str | None = Field(sa_column=Column(LongText))
