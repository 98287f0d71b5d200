"""What the filters of subscriptions read of a body: members of a JSON object, within limits of size and number."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from app.domain.filter_expression import BodyMember, MemberUse
from app.domain.json_depth import is_too_deep

MAX_READ_BODY_BYTES = 256 << 10
"""Bytes of a body that filters read. No filter that reads a larger one matches it."""

MAX_READ_BODY_ENTRIES = 10_000
"""Commas and opening brackets of a body that filters read, also those in its texts. Decoding that many empty arrays takes 5 ms."""

MAX_READ_VALUES = 100
"""Values that one filter reads of a body, counted in all arrays and objects that it reads as a whole. Each takes about 3 µs,
and up to 20 µs in a filter that compares them dozens of times."""

_ENTRY_BYTES = 100
"""Memory that a comma or an opening bracket stands for. Measured are 96 for objects with one member."""

_TEXT_FACTOR = 5
"""Memory that a byte of text takes while it is decoded. A text with one emoji takes four bytes for each character."""


def has_readable_size(body: bytes) -> bool:
    """Return whether a body is small enough for filters."""
    return len(body) <= MAX_READ_BODY_BYTES and _entry_count(body) <= MAX_READ_BODY_ENTRIES


def read_bytes(body: bytes) -> int:
    """Return the bytes that each filter may read of a body, 0 if it is too large for filters."""
    return len(body) if has_readable_size(body) else 0


def decoded_weight(body: bytes) -> int:
    """Return about how many bytes of memory a body takes while filters read it."""
    return len(body) * _TEXT_FACTOR + _entry_count(body) * _ENTRY_BYTES if has_readable_size(body) else 0


def decode_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a body; None for anything else, and for one that is too large or too deep for filters."""
    if body.lstrip(b" \t\r\n")[:1] != b"{" or not has_readable_size(body) or is_too_deep(body):
        return None
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError):
        return None


def _entry_count(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


@dataclass(slots=True)
class _Node:
    """A member of the body that a filter reads as a whole, whose presence it tests, or of which it reads members."""

    is_read: bool = False
    is_tested: bool = False
    members: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])


class MemberReader:
    """Finds the members that one filter reads, so that the library of filters converts nothing else."""

    def __init__(self, members: Iterable[BodyMember]) -> None:
        self._root = _Node()
        for names, use in members:
            node = self._root
            for name in names:
                node = node.members.setdefault(name, _Node())
            node.is_read |= use is not MemberUse.PRESENCE
            node.is_tested |= use is MemberUse.PRESENCE

    def read(self, body: Mapping[str, Any]) -> Any:
        """Return an object with these members and no others.

        What is missing or no object is like an empty object to a filter that reads only members of it. So these are missing.
        Raises `ValueError` if arrays and objects that the filter reads as a whole have too many values together.
        """
        return _Reading().value(self._root, body)


class _Reading:
    """One pass over a body; it counts the values that it copies."""

    def __init__(self) -> None:
        self._count = 0

    def value(self, node: _Node, found: Any) -> Any:
        """Return what a filter reads of a value. Of one whose presence is tested, that is only that it exists."""
        if node.is_read:
            self._count_values(found)
            return found
        members = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        return {
            name: self.value(inner, members.get(name))
            for name, inner in node.members.items()
            if name in members or not (inner.is_read or inner.is_tested)
        }

    def _count_values(self, found: Any) -> None:
        """Count the values inside an array or an object, without recursion and only up to the limit."""
        left = [found]
        while left:
            value = left.pop()
            if isinstance(value, dict):
                inner = [*cast("dict[str, Any]", value).values()]
            elif isinstance(value, list):
                inner = cast("list[Any]", value)
            else:
                continue
            self._count += len(inner)
            if self._count > MAX_READ_VALUES:
                raise ValueError("A filter reads fewer values of a body.")
            left += inner
