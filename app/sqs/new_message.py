"""A message that is sent through SQS becomes a message of the broker."""

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from app.domain.instant import from_seconds
from app.domain.message import MAX_PROPERTIES_BYTES, BodyKind, Envelope, MessageHeaders
from app.domain.queue import Queue
from app.domain.refusals import InvalidRequest
from app.domain.sending import NewMessage
from app.sqs.attribute_values import check_value
from app.sqs.errors import MissingParameter
from app.sqs.message_attributes import properties_of_attributes
from app.sqs.message_bodies import CONTENT_TYPE, body_bytes
from app.sqs.queue_labels import deduplication_scope, is_content_based
from app.sqs.queue_names import is_fifo
from app.sqs.shapes.messages import AttributeValue, SentMembers, SystemAttributeName
from app.sqs.trace_header import TRACE_HEADER_PROPERTY, is_traceparent, trace_header_of, traceparent_of
from app.wire.field_types import PropertyValue
from app.wire.properties import encode_properties

DEDUPLICATION_PROPERTY = "sqs:deduplication_id"
"""The property with the MessageDeduplicationId of a message whose `message_id` differs from it."""
WHOLE_QUEUE = "queue"
"""The DeduplicationScope in which ids of all groups are compared."""


class FifoRules(msgspec.Struct, frozen=True):
    """How a FIFO queue recognises duplicates: the values of ContentBasedDeduplication and DeduplicationScope."""

    content_based: bool = False
    scope: str = WHOLE_QUEUE


def fifo_rules(queue: Queue) -> FifoRules | None:
    """Return the rules of a FIFO queue, which its name tells; None for a standard queue."""
    if not is_fifo(queue.name):
        return None
    return FifoRules(is_content_based(queue.settings), deduplication_scope(queue.settings))


def new_message(members: SentMembers, fifo: FifoRules | None) -> NewMessage:
    """Return the message of a sender, for a FIFO queue with these rules or, without rules, for a standard queue.

    Refuses with `MissingParameter` a missing body or group, with `InvalidMessageContents` characters that XML does not
    allow, and with `InvalidRequest` attributes that SQS does not allow and members that do not fit the kind of queue.
    """
    body = body_bytes(members.message_body)
    properties = properties_of_attributes(members.message_attributes)
    traceparent = _add_trace(members.message_system_attributes, properties)
    if fifo is None:
        _check_standard(members)
        message_id = ""
    else:
        message_id = _add_deduplication(members, fifo, body, properties)
    return NewMessage(
        envelope=Envelope(
            message_id=message_id,
            headers=MessageHeaders(content_type=CONTENT_TYPE, traceparent=traceparent),
            group_id=members.message_group_id,
            properties=_encoded(properties),
        ),
        body=body,
        body_kind=BodyKind.BYTES,
        delay=None if fifo is not None or members.delay_seconds is None else from_seconds(members.delay_seconds),
    )


def _check_standard(members: SentMembers) -> None:
    if members.message_deduplication_id is not None:
        raise InvalidRequest("MessageDeduplicationId is only valid for a FIFO queue, and this is a standard queue.")


def _add_deduplication(members: SentMembers, fifo: FifoRules, body: bytes, properties: dict[str, PropertyValue]) -> str:
    """Return the id by which the broker recognises a duplicate, and keep the sender's own one if it differs.

    A delay of 0 is accepted, as SQS does; the delay of the queue holds.
    """
    if members.delay_seconds:
        raise InvalidRequest("DelaySeconds of a message is not valid for a FIFO queue. Set DelaySeconds of the queue.")
    if members.message_group_id is None:
        raise MissingParameter("The request must contain the parameter MessageGroupId: this is a FIFO queue.")
    sent_id = members.message_deduplication_id
    if sent_id is None:
        if not fifo.content_based:
            raise InvalidRequest(
                "The message needs MessageDeduplicationId, because its queue does not have ContentBasedDeduplication."
            )
        sent_id = sha256(body).hexdigest()
    if fifo.scope == WHOLE_QUEUE:
        return sent_id
    properties[DEDUPLICATION_PROPERTY] = sent_id
    # A group and an id have no blanks, so no other pair gives the same text.
    return sha256(f"{members.message_group_id} {sent_id}".encode()).hexdigest()


def _add_trace(
    attributes: Mapping[SystemAttributeName, AttributeValue], properties: dict[str, PropertyValue]
) -> str | None:
    """Return the `traceparent` of a message, and keep its AWSTraceHeader if that does not give it back exactly.

    A message attribute `traceparent` comes before AWSTraceHeader: it was made for this purpose.
    """
    given = properties.get("traceparent")
    traceparent = given if isinstance(given, str) and is_traceparent(given) else None
    attribute = attributes.get("AWSTraceHeader")
    if attribute is None:
        return traceparent
    _, trace_header = check_value("AWSTraceHeader", attribute)
    if attribute.data_type != "String":
        raise InvalidRequest("The type of message system attribute AWSTraceHeader is String.")
    traceparent = traceparent or traceparent_of(trace_header)
    if trace_header_of(traceparent) != trace_header:
        properties[TRACE_HEADER_PROPERTY] = trace_header
    return traceparent


def _encoded(properties: Mapping[str, PropertyValue]) -> bytes:
    try:
        return encode_properties(properties, "")
    except InvalidRequest:
        raise InvalidRequest(
            f"The attributes of a message have at most {MAX_PROPERTIES_BYTES} bytes together, with their names and types "
            "and as JSON."
        ) from None
