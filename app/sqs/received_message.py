"""A message of the broker as a receiver sees it through SQS."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from app.domain.dead_letters import SOURCE_PROPERTY
from app.domain.instant import Instant, to_milliseconds
from app.domain.message import Message
from app.domain.queue import is_valid_name
from app.domain.settlement import LockToken
from app.sqs.errors import InvalidAttributeName
from app.sqs.message_attributes import (
    AttributeSelection,
    attributes_of_properties,
    md5_of_attributes,
    selection_of,
)
from app.sqs.message_bodies import BASE64, ENCODING_ATTRIBUTE, BodyText, body_text, md5_of_body
from app.sqs.message_ids import message_id_of, sequence_number_text
from app.sqs.new_message import DEDUPLICATION_PROPERTY
from app.sqs.notification import TOPIC_PROPERTY, notification_text, topic_of
from app.sqs.queue_names import arn_of, is_fifo
from app.sqs.shapes.messages import AnsweredValue, ReceivedMessage, ReceiveMessage
from app.sqs.trace_header import TRACE_HEADER_PROPERTY, trace_header_of
from app.sqs.xml_text import quoted, xml_bytes
from app.wire.field_types import PropertyValue
from app.wire.properties import properties_of

_TOPIC_MEMBER = f'"{TOPIC_PROPERTY}"'.encode()
_ENCODED = AnsweredValue(data_type="String", string_value=BASE64)


class WantedAttributes(msgspec.Struct, frozen=True):
    """What a receiver asks for besides the body, and what the answer depends on besides the message."""

    system: frozenset[str]
    message: AttributeSelection | None
    is_fifo: bool
    region: str


Properties: TypeAlias = Mapping[str, PropertyValue]
SystemAttribute: TypeAlias = Callable[[Message, Properties, WantedAttributes], str | None]


def wanted_attributes(request: ReceiveMessage, queue: str, region: str) -> WantedAttributes:
    """Return what a receive from this queue asks for. `region` is that of ARNs.

    Refuses with `InvalidAttributeName` a system attribute that SQS does not have. Call it before messages are locked.
    """
    names = {*request.attribute_names, *request.message_system_attribute_names}
    unknown = names - SYSTEM_ATTRIBUTES.keys() - {"All"}
    if unknown:
        raise InvalidAttributeName(f"A message has no system attribute {quoted(min(unknown))}.")
    return WantedAttributes(
        system=frozenset(SYSTEM_ATTRIBUTES if "All" in names else names),
        message=selection_of(request.message_attribute_names),
        is_fifo=is_fifo(queue),
        region=region,
    )


def received_message(message: Message, wanted: WantedAttributes) -> ReceivedMessage:
    """Return a locked message with the attributes that its receiver asks for.

    A body of bytes that are no text is in base64. Only then, and always then, the message attribute `peeklock.encoding` is
    `base64`, also if the receiver asks for no attributes: without it a receiver could not know. The body of a message from a
    topic is an envelope, unless its subscription is raw.
    """
    if message.lock_token is None:
        raise ValueError("A message without a lock has no receipt handle.")
    topic = _topic_of(message)
    text, is_base64 = body_text(message.body) if topic is None else _envelope(message, topic, wanted)
    answer = ReceivedMessage(
        message_id=message_id_of(message.sequence_number),
        receipt_handle=str(LockToken(message.sequence_number, message.lock_token)),
        md5_of_body=md5_of_body(text),
        body=text,
    )
    if wanted.system or wanted.message is not None:
        _add_attributes(answer, message, wanted)
    if topic is not None:
        answer.message_attributes = {}
    if is_base64:
        answer.message_attributes[ENCODING_ATTRIBUTE] = _ENCODED
    answer.md5_of_message_attributes = md5_of_attributes(answer.message_attributes)
    return answer


def _topic_of(message: Message) -> str | None:
    """Return the topic of a message that its receiver gets in an envelope. Most messages have no such property."""
    properties = message.envelope.properties
    return topic_of(properties_of(properties)) if _TOPIC_MEMBER in properties else None


def _envelope(message: Message, topic: str, wanted: WantedAttributes) -> BodyText:
    """Return the envelope of a message from a topic. It has the attributes of the message, so the message itself has none."""
    properties = properties_of(message.envelope.properties)
    return BodyText(notification_text(message, properties, topic, wanted.region), is_base64=False)


def _add_attributes(answer: ReceivedMessage, message: Message, wanted: WantedAttributes) -> None:
    properties = properties_of(message.envelope.properties)
    for name in sorted(wanted.system):
        value = SYSTEM_ATTRIBUTES[name](message, properties, wanted)
        if value and xml_bytes(value) is not None:
            answer.attributes[name] = value
    if wanted.message is not None:
        answer.message_attributes = attributes_of_properties(properties, wanted.message)


def _not_stored(_message: Message, _properties: Properties, _wanted: WantedAttributes) -> None:
    """The broker does not store who has sent a message."""


def _sent_at(message: Message, _properties: Properties, _wanted: WantedAttributes) -> str:
    return _milliseconds(message.enqueued_at)


def _receive_count(message: Message, _properties: Properties, _wanted: WantedAttributes) -> str:
    """The number that the redrive policy compares: ends without a deletion, and this delivery."""
    return str(message.failure_count + 1)


def _first_received_at(message: Message, _properties: Properties, _wanted: WantedAttributes) -> str | None:
    return None if message.first_delivered_at is None else _milliseconds(message.first_delivered_at)


def _sequence_number(message: Message, _properties: Properties, wanted: WantedAttributes) -> str | None:
    return sequence_number_text(message.sequence_number) if wanted.is_fifo else None


def _group_id(message: Message, _properties: Properties, _wanted: WantedAttributes) -> str | None:
    return message.envelope.group_id


def _deduplication_id(message: Message, properties: Properties, wanted: WantedAttributes) -> str | None:
    sent_id = properties.get(DEDUPLICATION_PROPERTY)
    own_id = sent_id if isinstance(sent_id, str) else message.envelope.message_id
    return own_id if wanted.is_fifo else None


def _trace_header(message: Message, properties: Properties, _wanted: WantedAttributes) -> str | None:
    sent = properties.get(TRACE_HEADER_PROPERTY)
    return sent if isinstance(sent, str) else trace_header_of(message.envelope.headers.traceparent)


def _dead_letter_source(_message: Message, properties: Properties, wanted: WantedAttributes) -> str | None:
    queue = properties.get(SOURCE_PROPERTY)
    return arn_of(queue, wanted.region) if isinstance(queue, str) and is_valid_name(queue) else None


def _milliseconds(instant: Instant) -> str:
    return str(to_milliseconds(instant))


SYSTEM_ATTRIBUTES: Mapping[str, SystemAttribute] = {
    "SenderId": _not_stored,
    "SentTimestamp": _sent_at,
    "ApproximateReceiveCount": _receive_count,
    "ApproximateFirstReceiveTimestamp": _first_received_at,
    "SequenceNumber": _sequence_number,
    "MessageGroupId": _group_id,
    "MessageDeduplicationId": _deduplication_id,
    "AWSTraceHeader": _trace_header,
    "DeadLetterQueueSourceArn": _dead_letter_source,
}
"""How to find each system attribute; None if a message does not have it."""
