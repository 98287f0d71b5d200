"""Suggestions for names that do not exist."""

from collections.abc import Iterable
from difflib import get_close_matches

_MAX_COMPARED_LENGTH = 40
"""Characters of a name that is compared with others. The comparison takes time in proportion to its square."""

SIMILARITY = 0.7
"""How similar a suggested name is at least, from 0 to 1."""


def did_you_mean(name: str, names: Iterable[str], prefix: str = "") -> str:
    """Return a question that follows a sentence about an unknown name, empty if no name is like it.

    A prefix that all names have is not compared, because it would make them alike.
    """
    own_part, parts = name.removeprefix(prefix), [known.removeprefix(prefix) for known in names]
    near = get_close_matches(own_part, parts, 1, SIMILARITY) if len(own_part) <= _MAX_COMPARED_LENGTH else []
    return f" Did you mean `{prefix}{near[0]}`?" if near else ""
