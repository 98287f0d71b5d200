"""Writes the answers and errors of the query protocol as XML."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast
from xml.sax.saxutils import escape

import msgspec

from app.sqs.errors import AwsError
from app.sqs.query_protocol.members import members

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no document of XML 1.0 can have, not even escaped."""
_REPLACEMENT = "\ufffd"
_ENTITIES = {'"': "&quot;", "\r": "&#13;"}
"""What is escaped besides `&`, `<` and `>`. A parser reads a carriage return as a line feed unless it is escaped."""


class QueryProtocol(NamedTuple):
    """The query protocol of one service: the version that its requests name, and the namespace of its answers."""

    version: str
    namespace: str

    def xml_of(self, action: str, answer: msgspec.Struct | None, request_id: str) -> bytes:
        """Return the answer of an action. One whose answer has no members has no result element, as in AWS's answers.

        A character that XML does not allow becomes U+FFFD.
        """
        pieces = [f'<?xml version="1.0"?><{action}Response xmlns="{_escaped(self.namespace)}">']
        if answer is not None and members(type(answer)):
            _write(pieces, f"{action}Result", answer)
        pieces.append(f"<ResponseMetadata><RequestId>{_escaped(request_id)}</RequestId></ResponseMetadata>")
        pieces.append(f"</{action}Response>")
        return "".join(pieces).encode()

    def xml_error(self, error: AwsError, message: str, request_id: str) -> bytes:
        """Return the answer to a request that failed. The receiver is at fault from status 500, else the sender."""
        kind = "Sender" if error.is_of_sender else "Receiver"
        return (
            f'<?xml version="1.0"?><ErrorResponse xmlns="{_escaped(self.namespace)}">'
            f"<Error><Type>{kind}</Type><Code>{_escaped(error.code)}</Code><Message>{_escaped(message)}</Message><Detail/></Error>"
            f"<RequestId>{_escaped(request_id)}</RequestId></ErrorResponse>"
        ).encode()


SQS = QueryProtocol("2012-11-05", "http://queue.amazonaws.com/doc/2012-11-05/")


def _escaped(text: str) -> str:
    return escape(NOT_IN_XML.sub(_REPLACEMENT, text), _ENTITIES)


def _write(pieces: list[str], tag: str, value: object, key: str = "Name") -> None:
    """Append the elements of a value: one for a text, number or struct, one for each entry of a list or map, none for None.

    `key` is the element of the keys of a map.
    """
    match value:
        case None:
            return
        case str():
            pieces.append(f"<{tag}>{_escaped(value)}</{tag}>")
        case int():  # a boolean is one too, and is written with small letters
            pieces.append(f"<{tag}>{str(value).lower()}</{tag}>")
        case msgspec.Struct():
            pieces.append(f"<{tag}>")
            for member in members(type(value)):
                _write(pieces, member.query_name, getattr(value, member.attribute), member.key)
            pieces.append(f"</{tag}>")
        case tuple():
            for entry in cast("Sequence[object]", value):
                _write(pieces, tag, entry)
        case dict():
            for name, entry in cast("Mapping[str, object]", value).items():
                pieces.append(f"<{tag}><{key}>{_escaped(name)}</{key}>")
                _write(pieces, "Value", entry)
                pieces.append(f"</{tag}>")
        case _:
            raise TypeError(f"no element for a {type(value).__name__}")
