"""Messages as CloudEvents 1.0 in JSON, for batches (application/cloudevents-batch+json)."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from peeklock_client.encoding import encoded
from peeklock_client.events import PREFIX, VERSION
from peeklock_client.messages import Message
from peeklock_client.push.attributes import is_attribute, is_media_type
from peeklock_client.push.headers import text_of
from peeklock_client.push.raw_messages import content_of, properties_of

BATCH_TYPE = b"application/cloudevents-batch+json; charset=utf-8"
REQUIRED = ("id", "source", "type")
MESSAGE_TYPE = "peeklock.message"
"""The `type` of a message that is no CloudEvent and has no subject."""


def event_of(queue: str, message: Message[Any]) -> bytes:
    """Return a message as a CloudEvent in JSON.

    A message that was sent as a CloudEvent has its own attributes. Any other gets some: its `source` is the queue, its `id`
    the id of the message, its `type` the subject.
    """
    body, content_type = content_of(message)
    event = {
        "specversion": VERSION,
        "id": message.message_id,
        "source": f"/queues/{queue}",
        "type": message.subject or MESSAGE_TYPE,
        "time": text_of(message.enqueued_at),
        **({} if content_type is None or not is_media_type(content_type) else {"datacontenttype": content_type}),
        **_own_attributes(message),
        "peeklockqueue": queue,
        "peeklocksequence": str(message.sequence_number),
        "peeklockdelivery": message.delivery_count,
        **_texts(message),
        **_data(message, body),
    }
    return encoded(event)


def batch_of(events: Sequence[bytes]) -> bytes:
    """Return the body of a request with these events."""
    return b"[" + b",".join(events) + b"]"


def _own_attributes(message: Message[Any]) -> dict[str, str | int | bool]:
    """Return the attributes of a message that was sent as a CloudEvent, none of any other.

    Every sender may set properties with such names. If they make no valid event, the target would refuse the whole batch.
    """
    properties = _properties(message).items()
    own = {name.removeprefix(PREFIX): value for name, value in properties if name.startswith(PREFIX)}
    is_event = own.get("specversion") == VERSION and all(own.get(name) for name in REQUIRED)
    return own if is_event and all(is_attribute(name, value) for name, value in own.items()) else {}


def _texts(message: Message[Any]) -> dict[str, str]:
    texts = {
        "peeklockcorrelation": message.correlation_id,
        "peeklockgroup": message.group_id,
        "peeklockreplyto": message.reply_to,
        "peeklockto": message.to,
        "traceparent": message.traceparent,
    }
    return {name: text for name, text in texts.items() if text}


def _data(message: Message[Any], body: bytes) -> dict[str, Any]:
    """Return the member with the body: JSON as it is, text as a string, other bytes in base64."""
    if message.body is None:
        return {}
    if isinstance(message.body, msgspec.Raw):
        return {"data": message.body}
    return {"data_base64": base64.b64encode(body).decode()}


def _properties(message: Message[Any]) -> dict[str, Any]:
    """Return the properties of a message. A number that Python cannot read becomes infinite, as in `json`."""
    content = properties_of(message)
    return json.loads(content, parse_int=_integer) if content else {}


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)
