"""Looks: many messages read without their bodies, of which a few numbers are kept.

The properties of the messages of one look may have megabytes. So no caller holds what a look has read: not while it
waits for the next one, nor while the store does something with what was chosen.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.broker.broker import Broker
from app.broker.filters import Filter
from app.domain.message import Chosen, Outline
from app.domain.weight import ROW_BYTES, chosen

Read = Callable[[], Awaitable[Sequence[Outline]]]


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has found: the matches, how many messages it read, their weight without bodies, and the last."""

    matches: list[Chosen]
    count: int
    weight: int
    last: Chosen | None


async def look_through(broker: Broker, matching: Filter, read: Read) -> Look:
    """Read messages, once it is this look's turn, and choose those that match, in the order given."""
    async with broker.searches.turn(matching):
        seen = await read()
        matches = [chosen(one) for one in await matching.select(seen)]
        weight = sum(ROW_BYTES + len(one.envelope.properties) for one in seen)
        return Look(matches, len(seen), weight, chosen(seen[-1]) if seen else None)
