"""Messages: send, receive, delete, and change the visibility."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from app.domain.message import MAX_TEXT_LENGTH
from app.sqs.shapes.members import (
    MAX_DECODED_ENTRIES,
    MAX_MESSAGES,
    MAX_NAMES,
    MAX_WAIT_SECONDS,
    AnswerStruct,
    AttributeNames,
    Failed,
    OfQueue,
    QueueUrl,
    ReceiptHandle,
    RequestStruct,
    VisibilitySeconds,
    in_query,
)

MAX_ATTRIBUTES = 10
MAX_DELAY_SECONDS = 604_800
"""The longest delay of a message: seven days, where SQS has 15 minutes."""

EntryId: TypeAlias = Annotated[str, msgspec.Meta(max_length=1024)]
Delay: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_DELAY_SECONDS)]
GivenId: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,128}(?![\s\S])")]
"""The id of a group, of a duplicate or of an attempt: 1 to 128 printable ASCII characters without blanks."""

SelectedName: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
"""A name of a message attribute, or the beginning of names. A receive keeps it in memory while it waits."""


class AttributeValue(RequestStruct, kw_only=True):
    """A typed value. `string_list_values` and `binary_list_values` are reserved: SQS has no lists."""

    data_type: str
    string_value: str | None = None
    binary_value: str | None = None
    string_list_values: Annotated[tuple[str, ...], in_query("StringListValue", max_length=0)] = ()
    binary_list_values: Annotated[tuple[str, ...], in_query("BinaryListValue", max_length=0)] = ()


class AnsweredValue(AnswerStruct, kw_only=True):
    """A typed value in an answer."""

    data_type: str
    string_value: str | None = None
    binary_value: str | None = None


SystemAttributeName: TypeAlias = Literal["AWSTraceHeader"]
MessageAttributes: TypeAlias = Annotated[
    dict[str, AttributeValue], in_query("MessageAttribute", max_length=MAX_ATTRIBUTES)
]
SystemAttributes: TypeAlias = Annotated[
    dict[SystemAttributeName, AttributeValue], in_query("MessageSystemAttribute", max_length=1)
]


class SentMembers(RequestStruct, kw_only=True):
    """What a sender says about one message."""

    message_body: str
    delay_seconds: Delay | None = None
    message_attributes: MessageAttributes = msgspec.field(default_factory=dict[str, AttributeValue])
    message_system_attributes: SystemAttributes = msgspec.field(
        default_factory=dict[SystemAttributeName, AttributeValue]
    )
    message_deduplication_id: GivenId | None = None
    message_group_id: GivenId | None = None


class SendMessage(SentMembers, kw_only=True):
    """The request of SendMessage."""

    queue_url: QueueUrl | None = None


class SentMessage(AnswerStruct, kw_only=True):
    """The answer of SendMessage."""

    message_id: str
    md5_of_message_body: str = msgspec.field(name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = msgspec.field(name="MD5OfMessageAttributes", default=None)
    md5_of_message_system_attributes: str | None = msgspec.field(name="MD5OfMessageSystemAttributes", default=None)
    sequence_number: str | None = None


class SendEntry(SentMembers, kw_only=True):
    """One message of a batch."""

    id: EntryId


class SendMessageBatch(OfQueue, kw_only=True):
    """The request of SendMessageBatch. Each entry is decoded alone, so that a wrong one is refused alone."""

    entries: Annotated[
        tuple[msgspec.Raw, ...],
        in_query("SendMessageBatchRequestEntry", max_length=MAX_DECODED_ENTRIES, entry=SendEntry),
    ] = ()


class SentEntry(SentMessage, kw_only=True):
    """The result of one message of a batch."""

    id: str


class SentBatch(AnswerStruct, omit_defaults=False, kw_only=True):
    """The answer of SendMessageBatch."""

    successful: Annotated[tuple[SentEntry, ...], in_query("SendMessageBatchResultEntry")]
    failed: Failed


class ReceiveMessage(OfQueue, kw_only=True):
    """The request of ReceiveMessage. `AttributeNames` is the older name of `MessageSystemAttributeNames`."""

    attribute_names: AttributeNames = ()
    message_system_attribute_names: Annotated[
        tuple[str, ...], in_query("MessageSystemAttributeName", max_length=MAX_NAMES)
    ] = ()
    message_attribute_names: Annotated[
        tuple[SelectedName, ...], in_query("MessageAttributeName", max_length=MAX_NAMES)
    ] = ()
    max_number_of_messages: Annotated[int, msgspec.Meta(ge=1, le=MAX_MESSAGES)] = 1
    visibility_timeout: VisibilitySeconds | None = None
    wait_time_seconds: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] | None = None
    receive_request_attempt_id: GivenId | None = None


class ReceivedMessage(AnswerStruct, kw_only=True):
    """A message with its receipt handle."""

    message_id: str
    receipt_handle: str
    md5_of_body: str = msgspec.field(name="MD5OfBody")
    body: str
    attributes: Annotated[dict[str, str], in_query("Attribute")] = msgspec.field(default={})
    md5_of_message_attributes: str | None = msgspec.field(name="MD5OfMessageAttributes", default=None)
    message_attributes: Annotated[dict[str, AnsweredValue], in_query("MessageAttribute")] = msgspec.field(default={})


class ReceivedMessages(AnswerStruct, kw_only=True):
    """The answer of ReceiveMessage."""

    messages: Annotated[tuple[ReceivedMessage, ...], in_query("Message")] = ()


class DeleteMessage(OfQueue, kw_only=True):
    """The request of DeleteMessage."""

    receipt_handle: ReceiptHandle


class DeleteEntry(RequestStruct, kw_only=True):
    """One receipt handle of a batch."""

    id: EntryId
    receipt_handle: ReceiptHandle


class DeleteMessageBatch(OfQueue, kw_only=True):
    """The request of DeleteMessageBatch."""

    entries: Annotated[
        tuple[msgspec.Raw, ...],
        in_query("DeleteMessageBatchRequestEntry", max_length=MAX_DECODED_ENTRIES, entry=DeleteEntry),
    ] = ()


class DoneEntry(AnswerStruct, kw_only=True):
    """The success of one entry of a batch."""

    id: str


class DeletedBatch(AnswerStruct, omit_defaults=False, kw_only=True):
    """The answer of DeleteMessageBatch."""

    successful: Annotated[tuple[DoneEntry, ...], in_query("DeleteMessageBatchResultEntry")]
    failed: Failed


class ChangeMessageVisibility(OfQueue, kw_only=True):
    """The request of ChangeMessageVisibility."""

    receipt_handle: ReceiptHandle
    visibility_timeout: VisibilitySeconds


class ChangeVisibilityEntry(RequestStruct, kw_only=True):
    """One new visibility of a batch."""

    id: EntryId
    receipt_handle: ReceiptHandle
    visibility_timeout: VisibilitySeconds


class ChangeMessageVisibilityBatch(OfQueue, kw_only=True):
    """The request of ChangeMessageVisibilityBatch."""

    entries: Annotated[
        tuple[msgspec.Raw, ...],
        in_query(
            "ChangeMessageVisibilityBatchRequestEntry", max_length=MAX_DECODED_ENTRIES, entry=ChangeVisibilityEntry
        ),
    ] = ()


class ChangedBatch(AnswerStruct, omit_defaults=False, kw_only=True):
    """The answer of ChangeMessageVisibilityBatch."""

    successful: Annotated[tuple[DoneEntry, ...], in_query("ChangeMessageVisibilityBatchResultEntry")]
    failed: Failed
