"""How far a claim looks ahead in a queue of large messages, where a look cannot end when its budget is spent."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Line = TypeVar("Line", bound=Hashable)

LARGEST_LOOK = 1000
"""Messages: as many as a claim may ask for."""

MOST_LINES = 1000
"""Lines that are remembered. With more of them all begin again, which costs each one look that is too long."""


class Pace(Generic[Line]):
    """Remembers for each line how many messages to look at. A line whose messages fit is not remembered."""

    def __init__(self) -> None:
        self._most: dict[Line, int] = {}

    def most(self, line: Line, asked: int) -> int:
        """How many messages to look at for a claim that asks for this many."""
        return min(asked, self._most.get(line, asked))

    def was_cut(self, line: Line, fitted: int) -> None:
        """A look found more than fitted, and at least one fitted: look at twice as many as fitted from now on."""
        if len(self._most) >= MOST_LINES:
            self._most.clear()
        self._most[line] = 2 * fitted

    def was_short(self, line: Line) -> int:
        """All that a look found has fitted: look at twice as many. How many that is."""
        most = 2 * self._most.pop(line, LARGEST_LOOK)
        if most < LARGEST_LOOK:
            self._most[line] = most
        return most
