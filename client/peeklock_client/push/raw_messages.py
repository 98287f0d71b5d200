"""Messages whose bodies and properties stay as the server has sent them, because a push passes them on unchanged."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from peeklock_client.client import Client
from peeklock_client.connection import Connection
from peeklock_client.generated import answers
from peeklock_client.messages import BYTES_TYPE, Message

TEXT_CHARSETS = ("utf-8", "us-ascii")
LONG_IN_JSON = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")
"""Characters that no text body has when it is received as text. A text with one is the JSON value that was sent."""

JSON_TYPE = "application/json"


class RawView(answers.ReceivedMessage):
    """A message with a body and properties that are not decoded."""

    body: msgspec.Raw | UnsetType = UNSET
    properties: msgspec.Raw | UnsetType = UNSET  # pyright: ignore[reportIncompatibleVariableOverride]


class RawReceived(answers.ReceivedMessages):
    """The answer to a receive."""

    messages: list[RawView]  # pyright: ignore[reportIncompatibleVariableOverride]


class RawRecovered(answers.RecoveredMessages):
    """The answer to a recovery."""

    messages: list[RawView]  # pyright: ignore[reportIncompatibleVariableOverride]


RAW: dict[Any, Any] = {answers.ReceivedMessages: RawReceived, answers.RecoveredMessages: RawRecovered}


class RawConnection(Connection):
    """Decodes all of an answer but the bodies and the properties of its messages."""

    def decode(self, content: bytes, kind: Any) -> Any:
        """Return the JSON of an answer as this type, or as the raw form of it. Raises as `Connection` does."""
        raw = RAW.get(kind)
        if raw is None:
            return super().decode(content, kind)
        try:
            return msgspec.json.decode(content, type=raw)
        except msgspec.DecodeError:
            return _raw_form(super().decode(content, kind), raw)


def _raw_form(answer: answers.ReceivedMessages | answers.RecoveredMessages, raw: type[Any]) -> Any:
    """Return an answer that only Python's own decoder can read, with bodies that are encoded again."""
    views = [RawView(**msgspec.structs.asdict(view) | _encoded_parts(view)) for view in answer.messages]
    return raw(**msgspec.structs.asdict(answer) | {"messages": views})


def _encoded_parts(view: answers.ReceivedMessage) -> dict[str, Any]:
    parts = {"body": view.body, "properties": view.properties}
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in parts.items() if value is not UNSET}


class RawClient(Client):
    """A client that receives raw messages."""

    connection_type = RawConnection


def content_of(message: Message[Any]) -> tuple[bytes, str | None]:
    """Return the body of a raw message as it was sent, and its media type, None if it has no body."""
    body, content_type = message.body, (message.content_type or "").strip()
    if body is None:
        return b"", content_type or None
    if isinstance(body, bytes):
        return body, content_type or BYTES_TYPE
    text = bytes(body)
    plain = _plain_text(text) if is_text(content_type) else None
    return (text, content_type or JSON_TYPE) if plain is None else (plain.encode(), content_type)


def _plain_text(content: bytes) -> str | None:
    """Return the text that bytes were received as, None for a JSON value that was sent as such."""
    if not content.startswith(b'"'):
        return None
    try:
        text = msgspec.json.decode(content, type=str)
    except msgspec.DecodeError:
        return None
    return None if LONG_IN_JSON.search(text) else text


def is_text(content_type: str) -> bool:
    """Return whether the server gives bytes of this media type as text. It does not for JSON, such as `text/x+json`."""
    essence, *parameters = content_type.lower().split(";")
    if essence.strip().endswith("+json"):
        return False
    named = [parameter.partition("=") for parameter in parameters]
    charsets = [value.strip().strip('"') for name, _, value in named if name.strip() == "charset"]
    return essence.strip().startswith("text/") and all(charset in TEXT_CHARSETS for charset in charsets)


def properties_of(message: Message[Any]) -> bytes:
    """Return the properties of a raw message as JSON, empty if it has none."""
    properties: Any = message.properties
    return bytes(properties) if isinstance(properties, msgspec.Raw) else b""
