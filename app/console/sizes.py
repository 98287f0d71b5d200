"""Sizes as people write them, such as `1 MiB` or `256 KiB`, read and written without loss."""

import re
from fractions import Fraction

from app.domain.plurals import count_of
from app.domain.suggestions import did_you_mean

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

UNITS: dict[str, int] = {
    **dict.fromkeys(("b", "byte", "bytes"), 1),
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
}
"""The units by their names. `kB` and `MB` are left out, because they can mean thousands or multiples of 1,024."""

MAX_LENGTH = 32
"""Characters of a size. The longest one that is written here has 28."""

SIZE = re.compile(r"([0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,19}(?:\.[0-9]{1,15})?) *([A-Za-z]*)")
"""A number, also with a comma before every three digits, and its unit."""

EXAMPLES = "Write a size such as 256 KiB, 1 MiB or 1,048,576 bytes."
THOUSANDS = "{0} is ambiguous. A KiB is 1,024 bytes, and a MiB is 1,024 KiB. " + EXAMPLES
NOT_WHOLE = "A size is a whole number of bytes."


class NoSize(ValueError):
    """A text is not a size. Its first argument is a sentence for the person who typed it."""


def parse_size(text: str) -> int:
    """Return the bytes that a text means. Refuses with `NoSize`. A number without a unit is one of bytes."""
    text = text.strip()
    found = SIZE.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        raise NoSize(EXAMPLES)
    size = Fraction(found[1].replace(",", "")) * _unit(found[2])
    if size.denominator != 1:
        raise NoSize(NOT_WHOLE)
    return int(size)


def size_text(size: int) -> str:
    """Return a size in the largest unit that needs no more than two decimals. `parse_size` returns the same size."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and 100 * size % unit == 0:
            return f"{size / unit:.2f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{size:,} B"


def bytes_text(size: int) -> str:
    """Return a size as a number of bytes."""
    return count_of(size, "byte")


def exact_size_text(size: int) -> str:
    """Return a size with its number of bytes beside it, where a larger unit is used."""
    return bytes_text(size) if size < KIB or 100 * size % KIB else f"{size_text(size)} ({bytes_text(size)})"


def exact_beside(text: str) -> str:
    """Return the number of bytes that stands beside a text in a form, empty for what is no size."""
    try:
        return bytes_text(parse_size(text))
    except NoSize:
        return ""


def _unit(name: str) -> int:
    if not name:
        return 1
    if name.lower() in UNITS:
        return UNITS[name.lower()]
    if name.lower() in ("k", "kb", "m", "mb", "g", "gb"):
        raise NoSize(THOUSANDS.format(name))
    raise NoSize(f"{name} is not a unit of size.{did_you_mean(name.lower(), list(UNITS))} {EXAMPLES}")
