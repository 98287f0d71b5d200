"""Lets a handler limit what its worker receives, for example while what it calls does not work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Pace(Protocol):
    """Limits how many messages a worker receives, beside the room that it has for them."""

    def limit(self, room: int, in_hand: int) -> int:
        """Return how many messages may be received now, where there is room for `room` and `in_hand` are being processed."""
        ...

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever the limit may have grown for another reason than the end of a message."""
        ...


class FullPace:
    """Receives whenever there is room."""

    def limit(self, room: int, in_hand: int) -> int:
        """Return the room."""
        return room

    def on_change(self, changed: Callable[[], None]) -> None:
        """Do nothing, because the limit is the room."""
