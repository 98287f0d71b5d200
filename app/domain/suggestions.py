"""Suggestions for names that do not exist."""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_COMPARED_LENGTH = 40
"""Characters of a name that is compared with others. The comparison takes time in proportion to its square."""

SIMILARITY = 0.7
"""How similar a suggested name is at least, from 0 to 1."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question that follows a sentence about an unknown name, empty if no name is like it."""
    near = get_close_matches(name, names, 1, SIMILARITY) if len(name) <= MAX_COMPARED_LENGTH else []
    return f" Did you mean `{near[0]}`?" if near else ""
