"""The names that a key may list. A pattern that is a name, or a prefix and `*`, is a range of the sorted names."""

from collections.abc import Iterable
from dataclasses import dataclass

WILDCARDS = "*?["
AFTER_NAMES = "~"
"""A character above every character of a name."""


@dataclass(frozen=True, slots=True, order=True)
class NameRange:
    """Every name that begins with `start`, or only the name `start`."""

    start: str
    is_prefix: bool

    @property
    def end(self) -> str:
        """The upper bound of the range: no name of the range sorts after it."""
        return self.start + AFTER_NAMES if self.is_prefix else self.start

    def contains(self, name: str) -> bool:
        """Return whether the range has this name."""
        return name.startswith(self.start) if self.is_prefix else name == self.start

    def resume(self, after: str) -> str:
        """Return the text after which to read the rest of the range, once names up to `after` are read."""
        if not self.start:
            return after
        # No name is between this text and the start.
        before = self.start[:-1] + chr(ord(self.start[-1]) - 1) + AFTER_NAMES
        return max(after, before)


def _can_begin_a_name(text: str) -> bool:
    """Return whether names may begin with this text. A store could not compare every other text."""
    return text.isascii() and all(character.isalnum() or character in "._-" for character in text)


def ranges_of(patterns: Iterable[str]) -> tuple[NameRange, ...]:
    """Return the ranges of the patterns, sorted and disjoint; none if a pattern has a wildcard before its end.

    Such a pattern cannot be listed without reading the names of others.
    """
    ranges = {NameRange(pattern.removesuffix("*"), pattern.endswith("*")) for pattern in patterns}
    if any(wildcard in found.start for found in ranges for wildcard in WILDCARDS):
        return ()
    prefixes = [found for found in ranges if found.is_prefix]
    return tuple(
        sorted(
            found
            for found in ranges
            if _can_begin_a_name(found.start)
            and not any(other != found and other.contains(found.start) for other in prefixes)
        )
    )


def ranges_within(ranges: Iterable[NameRange], prefix: str) -> tuple[NameRange, ...]:
    """Return the parts of sorted, disjoint ranges whose names begin with this prefix."""
    if not _can_begin_a_name(prefix):
        return ()
    parts = (
        NameRange(prefix, is_prefix=True) if found.is_prefix and prefix.startswith(found.start) else found
        for found in ranges
    )
    return tuple(found for found in parts if found.start.startswith(prefix))
