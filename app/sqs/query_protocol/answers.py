"""Writes the answers and errors of the query protocol as XML."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast
from xml.sax.saxutils import escape

import msgspec

from app.sqs.errors import AwsError
from app.sqs.query_protocol.members import Member, members
from app.sqs.shapes.members import Nothing

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no document of XML 1.0 can have, not even escaped."""
_REPLACEMENT = "\ufffd"
_ENTITIES = {"\r": "&#13;"}
"""What is escaped in texts besides `&`, `<` and `>`. A parser reads a carriage return as a line feed unless it is escaped.

Quotes stay: JSON has many, and as `&quot;` each takes six bytes.
"""


class QueryService(NamedTuple):
    """A service in the query protocol: the version that its requests name, and the namespace of its answers."""

    version: str
    namespace: str

    def xml_of(self, action: str, answer: msgspec.Struct | None, request_id: str) -> bytes:
        """Return the answer of an action. One that answers `Nothing` has no result element, as in AWS's answers.

        A character that XML does not allow becomes U+FFFD.
        """
        pieces = [f'<?xml version="1.0"?><{action}Response xmlns="{self.namespace}">']
        if not isinstance(answer, Nothing | None):
            _write(pieces, f"{action}Result", answer)
        pieces.append(f"<ResponseMetadata><RequestId>{_escaped(request_id)}</RequestId></ResponseMetadata>")
        pieces.append(f"</{action}Response>")
        return "".join(pieces).encode()

    def xml_error(self, error: AwsError, message: str, request_id: str) -> bytes:
        """Return the answer to a request that failed."""
        return (
            f'<?xml version="1.0"?><ErrorResponse xmlns="{self.namespace}">'
            f"<Error><Type>{error.fault}</Type><Code>{_escaped(error.code)}</Code><Message>{_escaped(message)}</Message><Detail/></Error>"
            f"<RequestId>{_escaped(request_id)}</RequestId></ErrorResponse>"
        ).encode()


SQS = QueryService("2012-11-05", "http://queue.amazonaws.com/doc/2012-11-05/")
SNS = QueryService("2010-03-31", "http://sns.amazonaws.com/doc/2010-03-31/")


def _escaped(text: str) -> str:
    return escape(NOT_IN_XML.sub(_REPLACEMENT, text), _ENTITIES)


def _write_members(pieces: list[str], struct: msgspec.Struct) -> None:
    for member in members(type(struct)):
        _write_member(pieces, member, getattr(struct, member.attribute))


def _write_member(pieces: list[str], member: Member, value: object) -> None:
    """Append the elements of a member: none for None, and for a list or map one for each entry.

    A list or map whose entries have an element of their own is written without entries too: clients of SNS expect it.
    """
    match value:
        case tuple():
            entries = cast("Sequence[object]", value)
            _write_entries(pieces, member, [partial(_write, value=entry) for entry in entries])
        case dict():
            pairs = cast("Mapping[str, object]", value).items()
            _write_entries(
                pieces, member, [partial(_write_pair, member=member, key=key, value=one) for key, one in pairs]
            )
        case _:
            _write(pieces, member.query_name, value)


def _write_entries(pieces: list[str], member: Member, entries: Sequence[Callable[[list[str], str], None]]) -> None:
    tag = member.query_name
    if member.element is not None:
        pieces.append(f"<{tag}>")
    for write in entries:
        write(pieces, member.element or tag)
    if member.element is not None:
        pieces.append(f"</{tag}>")


def _write_pair(pieces: list[str], tag: str, *, member: Member, key: str, value: object) -> None:
    pieces.append(f"<{tag}><{member.key}>{_escaped(key)}</{member.key}>")
    _write(pieces, member.value, value)
    pieces.append(f"</{tag}>")


def _write(pieces: list[str], tag: str, value: object) -> None:
    """Append the element of a text, a number or a struct; none for None."""
    match value:
        case None:
            return
        case str():
            pieces.append(f"<{tag}>{_escaped(value)}</{tag}>")
        case int():  # a boolean is one too, and is written with small letters
            pieces.append(f"<{tag}>{str(value).lower()}</{tag}>")
        case msgspec.Struct():
            pieces.append(f"<{tag}>")
            _write_members(pieces, value)
            pieces.append(f"</{tag}>")
        case _:
            raise TypeError(f"no element for a {type(value).__name__}")
