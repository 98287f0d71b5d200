"""CloudEvents 1.0.2 as messages: the attributes of an event are properties, its data is the body.

The server converts events that it gets over HTTP to the same messages (docs/http/send.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import uuid4

from peeklock_client.errors import PeeklockError
from peeklock_client.messages import BodyType, Message, NewMessage

DataType = TypeVar("DataType")

VERSION = "1.0"
PREFIX = "cloudEvents:"
OPTIONAL = ("subject", "datacontenttype", "dataschema")
ATTRIBUTES = frozenset(("specversion", "id", "source", "type", "time", *OPTIONAL))
EXTENSION_NAME = re.compile("[a-z0-9]+")


class InvalidCloudEvent(PeeklockError):
    """A message is not a valid CloudEvent of version 1.0."""


def new_id() -> str:
    """Return an id for a new event."""
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class CloudEvent(Generic[BodyType]):
    """An event: what has happened (`type`), where (`source`), and its data.

    `source` and `id` together identify the event. `extensions` are additional attributes, whose names have only lower-case
    letters and digits. Raises `ValueError` for any other name.
    """

    type: str
    source: str
    data: BodyType
    id: str = field(default_factory=new_id)
    subject: str | None = None
    time: datetime | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, str | int | bool] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for name in self.extensions:
            if name in ATTRIBUTES or EXTENSION_NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r} is not a valid name for a CloudEvent extension.")

    def to_message(self, *, queue: str | None = None, topic: str | None = None) -> NewMessage:
        """Return the message that carries the event, with the id of the event."""
        attributes: dict[str, str | int | bool] = {
            "specversion": VERSION,
            "id": self.id,
            "source": self.source,
            "type": self.type,
            **{name: value for name in OPTIONAL if (value := getattr(self, name)) is not None},
            **({} if self.time is None else {"time": self.time.isoformat()}),
            **self.extensions,
        }
        return NewMessage(
            self.data,
            queue=queue,
            topic=topic,
            message_id=self.id,
            subject=self.type,
            content_type=self.datacontenttype,
            properties={PREFIX + name: value for name, value in attributes.items()},
        )

    @staticmethod
    def from_message(message: Message[DataType]) -> CloudEvent[DataType]:
        """Return the event that a message carries. Raises `InvalidCloudEvent`."""
        attributes = {
            name.removeprefix(PREFIX): value for name, value in message.properties.items() if name.startswith(PREFIX)
        }
        if attributes.pop("specversion", None) != VERSION:
            raise InvalidCloudEvent(f"Message {message.sequence_number} is not a CloudEvent of version {VERSION}.")
        extensions = {name: value for name, value in attributes.items() if name not in ATTRIBUTES}
        try:
            time = attributes.get("time")
            return CloudEvent(
                attributes["type"],
                attributes["source"],
                message.body,
                attributes["id"],
                time=None if time is None else datetime.fromisoformat(time),
                extensions=extensions,
                **{name: attributes.get(name) for name in OPTIONAL},
            )
        except (KeyError, ValueError, TypeError) as error:
            raise InvalidCloudEvent(
                f"Message {message.sequence_number} is not a valid CloudEvent: {error!r}."
            ) from error
