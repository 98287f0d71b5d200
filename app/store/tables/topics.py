"""The tables of topics and subscriptions."""

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, Integer, UniqueConstraint
from sqlmodel import Field, SQLModel

from app.store.tables.column_types import NO_ID_REUSE, LongText, NameType, TableName


class TopicRow(SQLModel, table=True):
    """A topic. `labels` is a JSON object, null for none."""

    __tablename__: ClassVar[TableName] = "topic"
    __table_args__ = (NO_ID_REUSE,)

    id: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=True))
    name: str = Field(sa_column=Column(NameType, nullable=False, unique=True))
    description: str = Field(sa_column=Column(LongText, nullable=False))
    version: int = Field(sa_column=Column(Integer, nullable=False))
    created_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    updated_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    labels: str | None = Field(sa_column=Column(LongText))


class SubscriptionRow(SQLModel, table=True):
    """A subscription of a topic.

    `set_properties` is a JSON object, empty for none. `remove_properties` is a JSON list.
    `labels` is a JSON object, null for none.
    """

    __tablename__: ClassVar[TableName] = "subscription"
    __table_args__ = (
        UniqueConstraint("topic_id", "name", name="subscription_name"),
        Index("subscription_target_queue", "target_queue"),
        NO_ID_REUSE,
    )

    id: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=True))
    topic_id: int = Field(sa_column=Column(Integer, nullable=False))
    name: str = Field(sa_column=Column(NameType, nullable=False))
    target_queue: str = Field(sa_column=Column(NameType, nullable=False))
    filter: str | None = Field(sa_column=Column(LongText))
    set_properties: str = Field(sa_column=Column(LongText, nullable=False))
    remove_properties: str = Field(sa_column=Column(LongText, nullable=False))
    version: int = Field(sa_column=Column(Integer, nullable=False))
    created_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    updated_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    labels: str | None = Field(sa_column=Column(LongText))
