"""The body that SNS gives to a message of a topic for a receiver that has not asked for raw delivery.

A message is stored raw, once for all subscriptions. A subscription that is not raw sets the property `sns:topic` of its copies,
and a receive through SQS puts a message that has it into this envelope.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from uuid import UUID

import msgspec

from app.domain.instant import Instant
from app.domain.message import Message
from app.domain.queue import is_valid_name
from app.sqs.message_attributes import attributes_of_properties
from app.sqs.message_bodies import BASE64, ENCODING_ATTRIBUTE, body_text
from app.sqs.message_ids import sequence_number_text
from app.sqs.queue_names import is_fifo
from app.sqs.topic_names import topic_arn
from app.wire.field_types import PropertyValue
from app.wire.times import to_wire

TOPIC_PROPERTY = "sns:topic"
"""The property with the name of the topic, on the copies of a subscription that is not raw."""

_NOT_IN_XML = {ord(character): f"\\u{ord(character):04x}" for character in "\ufffe\uffff"}
"""How JSON escapes the characters of a subject that XML does not allow. It escapes control characters anyway."""

GENERATED_ID = re.compile(r"[0-9a-f]{32}")


class NotificationAttribute(msgspec.Struct):
    """An attribute of the message. The value of a Binary is in base64."""

    type: str = msgspec.field(name="Type")
    value: str = msgspec.field(name="Value")


class Notification(msgspec.Struct, rename="pascal", omit_defaults=True):
    """The envelope. It has no signature: that of SNS needs a certificate of Amazon."""

    type: str
    message_id: str
    topic_arn: str
    message: str
    timestamp: str
    subject: str | None = None
    sequence_number: str | None = None
    message_attributes: dict[str, NotificationAttribute] = msgspec.field(default={})


def topic_of(properties: Mapping[str, PropertyValue]) -> str | None:
    """Return the topic that a message with these properties comes from, if its body is put into an envelope."""
    topic = properties.get(TOPIC_PROPERTY)
    return topic if isinstance(topic, str) and is_valid_name(topic) else None


def notification_text(message: Message, properties: Mapping[str, PropertyValue], topic: str, region: str) -> str:
    """Return the envelope of a message as JSON. `region` is that of the ARN of its topic."""
    text, is_base64 = body_text(message.body)
    attributes = {
        name: NotificationAttribute(attribute.data_type, attribute.string_value or attribute.binary_value or "")
        for name, attribute in attributes_of_properties(properties).items()
    }
    if is_base64:
        attributes[ENCODING_ATTRIBUTE] = NotificationAttribute("String", BASE64)
    envelope = Notification(
        type="Notification",
        message_id=notification_id(message.envelope.message_id),
        topic_arn=topic_arn(topic, region),
        message=text,
        timestamp=_milliseconds(message.enqueued_at),
        subject=message.envelope.headers.subject,
        sequence_number=sequence_number_text(message.sequence_number) if is_fifo(topic) else None,
        message_attributes=attributes,
    )
    return msgspec.json.encode(envelope).decode().translate(_NOT_IN_XML)


def notification_id(message_id: str) -> str:
    """Return the MessageId of a published message, which Publish answers and all its envelopes have: a UUID.

    One that the server has made is that id with dashes. Another one gives the same UUID each time.
    """
    if GENERATED_ID.fullmatch(message_id):
        return str(UUID(message_id))
    return str(UUID(bytes=blake2b(message_id.encode(), digest_size=16).digest(), version=5))


def _milliseconds(instant: Instant) -> str:
    return f"{to_wire(instant)[:-4]}Z"
