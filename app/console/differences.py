"""The differences between two values of JSON, member by member, in time that grows with their size alone."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from app.console.bodies import Number, visible

MAX_COMPARED_BYTES = 128 << 10
"""Bytes of a value that is compared: both take some 40 ms together."""

MAX_DIFFERENCES = 200
MAX_SHOWN_LENGTH = 240
"""Characters of a value or of a pointer that are shown."""

Path: TypeAlias = "tuple[Path, str] | None"
"""The names from the whole value to a member, the last one outside. Most members are equal and need no pointer."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A member that differs, by its JSON pointer (RFC 6901). None stands for a member that one value does not have."""

    pointer: str
    before: str | None
    after: str | None


class _Missing:
    """The value of a member that is not there."""


MISSING = _Missing()


def differences(before: bytes, after: bytes) -> tuple[Sequence[Difference], bool] | None:
    """Return the first differences of two values and whether there are more; None if a value is too large."""
    if max(len(before), len(after)) > MAX_COMPARED_BYTES:
        return None
    found: list[Difference] = []
    for difference in _compare(None, _decode(before), _decode(after)):
        if len(found) == MAX_DIFFERENCES:
            return found, True
        found.append(difference)
    return found, False


def _decode(value: bytes) -> Any:
    return json.loads(value, parse_int=Number, parse_float=Number, parse_constant=Number)


def _compare(path: Path, before: Any, after: Any) -> Iterator[Difference]:
    old, new = _members(before), _members(after)
    if old is not None and new is not None and isinstance(before, dict) == isinstance(after, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _compare((path, name), old.get(name, MISSING), new.get(name, MISSING))
    elif _kind(before) != _kind(after) or before != after:
        yield Difference(_pointer(path), _text(before), _text(after))


def _members(value: Any) -> dict[str, Any] | None:
    """Return the members of an object, or the entries of an array by their positions; None for other values."""
    if isinstance(value, list):
        return {str(index): entry for index, entry in enumerate(cast("list[Any]", value))}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _kind(value: object) -> str:
    """Return the type of a value: 1 equals true, and a number equals the text that it is written as."""
    return type(value).__name__


def _pointer(path: Path) -> str:
    names: list[str] = []
    while path is not None:
        path, name = path
        names.append(name.replace("~", "~0").replace("/", "~1"))
    return _shortened("".join(f"/{name}" for name in reversed(names)))


def _text(value: Any) -> str | None:
    match value:
        case _Missing():
            return None
        case Number():
            return _shortened(value)
        case dict():
            return f"an object of {len(cast('dict[str, Any]', value)):,}"
        case list():
            return f"an array of {len(cast('list[Any]', value)):,}"
        case _:
            return _shortened(json.dumps(value, ensure_ascii=False))


def _shortened(text: str) -> str:
    return visible(text if len(text) <= MAX_SHOWN_LENGTH else text[:MAX_SHOWN_LENGTH] + "…")
