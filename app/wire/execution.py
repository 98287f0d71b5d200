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


class SendEntry(MessageToSend, kw_only=True):
    """A message, and the queue that it is sent to."""

    queue: QueueName


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
    """Settlements and sends that take effect together: first the settlements, then the sends in their order."""

    settlements: Annotated[list[SettleEntry], msgspec.Meta(max_length=MAX_BATCH_COUNT)] = []
    sends: Annotated[list[SendEntry], msgspec.Meta(max_length=MAX_BATCH_COUNT)] = []


class Executed(msgspec.Struct):
    """The result of each settlement and of each send, in order."""

    settlements: list[SettlementDone]
    sends: list[SentMessage]
