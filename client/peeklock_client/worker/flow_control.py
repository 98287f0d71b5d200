"""Lets a handler limit what its worker receives, for example while what it calls does not work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class FlowControl(Protocol):
    """Limits how many messages a worker receives, besides the room that it has for them."""

    def limit(self, room: int, in_hand: int) -> int:
        """Return how many messages may be received now, with this room for them and this number in hand."""
        ...

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever the limit may have grown for another reason than the end of a message."""
        ...


class Unlimited:
    """Sets no limit but the room."""

    def limit(self, room: int, in_hand: int) -> int:
        """Return the room."""
        return room

    def on_change(self, changed: Callable[[], None]) -> None:
        """Do nothing, because the limit is the room."""
