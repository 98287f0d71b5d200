"""Work units in requests and responses."""

from typing import Annotated, TypeAlias

import msgspec

from app.domain.message import MAX_BATCH_COUNT
from app.wire.field_types import QueueName
from app.wire.message_fields import MessageToSend
from app.wire.sending import SentMessage
from app.wire.settlements import (
    AbandonSettlement,
    CompleteSettlement,
    DeadLetterSettlement,
    DeferSettlement,
    ReleaseSettlement,
    SettlementDone,
)
from app.wire.state_values import StateBody
from app.wire.topics import PublishedMessage

MAX_PUBLISHES = 100
"""Publishes of a request. Each evaluates the filters of all subscriptions of its topic."""

MAX_STATES = 100
"""States of a request. Its transaction locks the key of each until it ends."""


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


class ReleaseEntry(ReleaseSettlement, kw_only=True):
    """Release one delivery of this queue."""

    queue: QueueName


SettleEntry: TypeAlias = CompleteEntry | AbandonEntry | DeadLetterEntry | DeferEntry | ReleaseEntry


class ExecuteWorkUnit(msgspec.Struct, forbid_unknown_fields=True):
    """What takes effect together: first the settlements, then the states, the sends in their order, and the publishes."""

    settlements: Annotated[list[SettleEntry], msgspec.Meta(max_length=MAX_BATCH_COUNT)] = []
    sends: Annotated[list[SendEntry], msgspec.Meta(max_length=MAX_BATCH_COUNT)] = []
    publishes: Annotated[list[PublishEntry], msgspec.Meta(max_length=MAX_PUBLISHES)] = []
    states: Annotated[list[StateBody], msgspec.Meta(max_length=MAX_STATES)] = []


class AddedState(msgspec.Struct):
    """A state, and the version that was added to it."""

    key: str
    version: int


class ExecutedWorkUnit(msgspec.Struct):
    """The result of each settlement, of each send, of each publish and of each state, in order."""

    settlements: list[SettlementDone]
    sends: list[SentMessage]
    publishes: list[PublishedMessage]
    states: list[AddedState]
