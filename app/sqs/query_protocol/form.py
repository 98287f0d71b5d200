"""Reads a request of the query protocol: a form in the body, or in the query string of a presigned request."""

import re
from binascii import a2b_qp
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from app.domain.refusals import InvalidRequest
from app.wire.decode_errors import shortened

MAX_FIELDS = 1000
"""Fields of a request, in its body and its query string together. Ten messages, each with ten attributes of four fields, one
system attribute and five members, have 490."""

MALFORMED_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

_OF_PROTOCOL = frozenset(
    {
        "Action",
        "Version",
        "AWSAccessKeyId",
        "Expires",
        "SecurityToken",
        "Signature",
        "SignatureMethod",
        "SignatureVersion",
        "Timestamp",
    }
)
_OF_SIGNATURE = "X-Amz-"
"""How the names of the fields of a presigned request begin."""


class Form(NamedTuple):
    """A request: its action and version, each empty if it has none, and the parameters of the action by name."""

    action: str
    version: str
    parameters: Mapping[str, str]


def read_form(body: bytes, query_string: bytes = b"") -> Form:
    """Return the form that a body and a query string have together.

    Fields of the protocol, such as those of a signature, are not among the parameters. It refuses with `InvalidRequest` more
    than `MAX_FIELDS` fields, a name that is given twice, malformed escapes, and text that is not UTF-8. The number is checked
    first, because each field becomes objects.
    """
    if sum(part.count(b"&") + 1 for part in (body, query_string) if part) > MAX_FIELDS:
        raise InvalidRequest(f"A request has at most {MAX_FIELDS:,} fields.")
    fields: dict[str, str] = {}
    for part in (query_string, body):
        for name, value in _fields(part):
            if name in fields:
                raise InvalidRequest(f"The parameter `{shortened(name)}` is given more than once.")
            fields[name] = value
    parameters = {name: value for name, value in fields.items() if not _is_of_protocol(name)}
    return Form(fields.get("Action", ""), fields.get("Version", ""), parameters)


def _fields(part: bytes) -> Iterator[tuple[str, str]]:
    """Yield the names and values of an encoded form. As in browsers, a name without `=` has an empty value."""
    if MALFORMED_ESCAPE.search(part):
        raise InvalidRequest("The form has a `%` without two hexadecimal digits. Write a percent sign as `%25`.")
    for field in part.split(b"&"):
        if field:
            name, _, value = field.partition(b"=")
            yield _text(name), _text(value)


def _text(encoded: bytes) -> str:
    """Decode blanks and escapes, which are well formed.

    Quoted-printable is the same code with another sign. Its decoder writes into one buffer, while that of urllib makes an
    object of each escape, which takes fifteen times the memory of the body.
    """
    plain = encoded.replace(b"+", b" ")
    if b"%" in plain:
        plain = a2b_qp(plain.replace(b"=", b"%3D").replace(b"%", b"="))
    try:
        return plain.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("The form is not UTF-8.") from None


def _is_of_protocol(name: str) -> bool:
    return name in _OF_PROTOCOL or name.startswith(_OF_SIGNATURE)
