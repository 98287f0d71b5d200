"""Writes JSON values as YAML. A string is quoted unless every YAML parser reads it as a string."""

import json
from collections.abc import Iterator, Mapping
from string import ascii_letters, digits
from typing import Any, cast

PLAIN_LETTERS = frozenset(f"{ascii_letters}{digits}_./- ")
OTHER_MEANINGS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
"""Words that at least one version of YAML does not read as strings."""


def yaml_document(document: Any) -> str:
    """Return a JSON value as a document of YAML. Numbers keep their digits."""
    return "\n".join(_lines(document))


def _lines(value: Any) -> Iterator[str]:
    """Yield the lines of a value."""
    if isinstance(value, Mapping) and value:
        for name, member in cast("Mapping[str, Any]", value).items():
            yield from _entry(f"{_scalar(name)}:", member)
    elif isinstance(value, list) and value:
        for item in cast("list[Any]", value):
            yield from _entry("-", item)
    else:
        yield _scalar(value)


def _entry(start: str, value: Any) -> Iterator[str]:
    """Yield the lines of a member or an item: on one line if the value needs no more, else indented below."""
    if isinstance(value, Mapping | list) and value:
        yield start
        yield from (f"  {line}" for line in _lines(value))
    else:
        yield f"{start} {_scalar(value)}"


def _is_plain(text: str) -> bool:
    """Return whether a text needs no quotes: words that begin with a letter, and mean nothing else."""
    is_word = text[:1] in ascii_letters and not text.endswith(" ") and PLAIN_LETTERS.issuperset(text)
    return bool(text) and is_word and text.lower() not in OTHER_MEANINGS


def _quoted(text: str) -> str:
    """Return a text in double quotes. YAML has the escapes of JSON, but not its pairs of surrogates."""
    written = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in written)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    if value is None or isinstance(value, bool | Mapping | list):
        return json.dumps(value)
    return str(value)
