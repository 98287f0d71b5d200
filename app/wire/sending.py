"""Messages in send requests, and their results."""

from typing import Annotated, Literal, Self, TypeAlias

import msgspec

from app.domain.message import MAX_BATCH_COUNT, Receipt
from app.domain.settlement import Outcome
from app.domain.synchronous_send import Completion
from app.wire.field_types import STATE_NAMES, AnyJson, SentState, Timestamp, TransactionId
from app.wire.message_fields import MessageToSend
from app.wire.problems import Problem
from app.wire.times import to_wire


class SendMessage(MessageToSend, kw_only=True):
    """A message to send alone, at once or with a transaction."""

    transaction_id: TransactionId | None = None


RawMessage: TypeAlias = Annotated[
    msgspec.Raw, msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/MessageToSend"})
]
"""A message of a batch, not decoded at first, because each may be refused separately."""


class SendBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Messages sent in one request: all or none, unless `atomic` is false. A batch in a transaction is atomic."""

    messages: Annotated[list[RawMessage], msgspec.Meta(min_length=1, max_length=MAX_BATCH_COUNT)]
    atomic: bool = True
    transaction_id: TransactionId | None = None


class SentMessage(msgspec.Struct):
    """A stored message, or one that waits for the commit of a transaction."""

    sequence_number: int | None
    message_id: str
    enqueued_at: Timestamp | None
    state: SentState
    duplicate: bool

    @classmethod
    def of(cls, receipt: Receipt) -> Self:
        """Build the JSON of a receipt."""
        state = "ended" if receipt.state is None else STATE_NAMES[receipt.state]
        enqueued_at = to_wire(receipt.enqueued_at)
        return cls(receipt.sequence_number, receipt.message_id, enqueued_at, state, receipt.duplicate)

    @classmethod
    def uncommitted(cls, message_id: str) -> Self:
        """Build the JSON of a message that waits for the commit of its transaction."""
        return cls(None, message_id, None, "uncommitted", duplicate=False)


class SentResult(SentMessage, tag_field="result", tag="sent"):
    """One stored message of a batch."""


class RefusedSend(msgspec.Struct, tag_field="result", tag="refused"):
    """One refused message of a batch, and why."""

    problem: Problem


SendResult: TypeAlias = SentResult | RefusedSend


class SendResults(msgspec.Struct):
    """The result of each message, in order."""

    results: list[SendResult]


class AcceptedMessage(msgspec.Struct):
    """An accepted volatile message, which is stored shortly after the response."""

    message_id: str
    durability: Literal["volatile"] = "volatile"


SendOutcome: TypeAlias = Literal["completed", "received"]


class SendAnswer(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The answer to a send of one message.

    One that was stored, or that waits for the commit of a transaction, has the fields of `SentMessage`. One that is
    stored shortly after the answer has `durability`. Only a synchronous send has `outcome`, and `reply` if the receiver gave
    one.
    """

    outcome: SendOutcome | msgspec.UnsetType = msgspec.UNSET
    sequence_number: int | msgspec.UnsetType | None = msgspec.UNSET
    message_id: str
    reply: AnyJson | msgspec.UnsetType = msgspec.UNSET
    enqueued_at: Timestamp | msgspec.UnsetType | None = msgspec.UNSET
    state: SentState | msgspec.UnsetType = msgspec.UNSET
    duplicate: bool | msgspec.UnsetType = msgspec.UNSET
    durability: Literal["volatile"] | msgspec.UnsetType = msgspec.UNSET


def delivered_message(completion: Completion) -> SendAnswer:
    """Build the JSON of a synchronous send that was accepted."""
    return SendAnswer(
        outcome="completed" if completion.outcome is Outcome.COMPLETED else "received",
        sequence_number=completion.sequence_number,
        message_id=completion.message_id,
        reply=msgspec.UNSET if completion.reply is None else msgspec.Raw(completion.reply),
    )
