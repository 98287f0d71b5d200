"""Work units in requests and responses."""

from typing import Annotated, TypeAlias

import msgspec

from app.domain.message import MAX_BATCH_COUNT
from app.wire.field_types import QueueName
from app.wire.sending import MessageToSend, SentMessage
from app.wire.settlements import (
    AbandonSettlement,
    CompleteSettlement,
    DeadLetterSettlement,
    DeferSettlement,
    SettlementDone,
)
from app.wire.topics import PublishedMessage

MAX_PUBLISHES = 100
"""Publishes of a request. Each evaluates the filters of all subscriptions of its topic."""


class SendEntry(MessageToSend, kw_only=True):
    """A message, and the queue that it is sent to."""

    queue: QueueName


class PublishEntry(MessageToSend, kw_only=True):
    """A message, and the topic that it is published to."""

    topic: QueueName


class CompleteEntry(CompleteSettlement, kw_only=True):
    """Complete one delivery of this queue."""

    queue: QueueName


class AbandonEntry(AbandonSettlement, kw_only=True):
    """Abandon one delivery of this queue."""

    queue: QueueName


class DeadLetterEntry(DeadLetterSettlement, kw_only=True):
    """Dead-letter one delivery of this queue."""

    queue: QueueName


class DeferEntry(DeferSettlement, kw_only=True):
    """Defer one delivery of this queue."""

    queue: QueueName


SettleEntry: TypeAlias = CompleteEntry | AbandonEntry | DeadLetterEntry | DeferEntry


class Execute(msgspec.Struct, forbid_unknown_fields=True):
    """What takes effect together: first the settlements, then the sends in their order, then the publishes."""

    settlements: Annotated[list[SettleEntry], msgspec.Meta(max_length=MAX_BATCH_COUNT)] = []
    sends: Annotated[list[SendEntry], msgspec.Meta(max_length=MAX_BATCH_COUNT)] = []
    publishes: Annotated[list[PublishEntry], msgspec.Meta(max_length=MAX_PUBLISHES)] = []


class Executed(msgspec.Struct):
    """The result of each settlement, of each send and of each publish, in order."""

    settlements: list[SettlementDone]
    sends: list[SentMessage]
    publishes: list[PublishedMessage]
